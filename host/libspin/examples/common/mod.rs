//! What the host programs of the shipped handlers have in common: `PROGRAM IMAGE.elf MESSAGES [SOCKET]` installs the image's
//! handlers and waits until so many messages have ended.
#![allow(dead_code, reason = "each program uses its part of this")]

use std::error::Error;
use std::thread::sleep;
use std::time::Duration;

use libspin::{Client, DEFAULT_SOCKET, Install, Region};

pub type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// The datagrams that handlers get.
pub const RULE: &str = "udp dport 9999";

/// A program whose handlers are installed. They go when it ends.
pub struct Program {
    pub spind: Client,
    pub host: Option<Region>,
    context: u32,
    messages: u64,
}

impl Program {
    /// Installs the handlers that the command line names.
    pub fn install(install: &Install) -> Outcome<Self> {
        let mut arguments = std::env::args().skip(1);
        let usage = "usage: PROGRAM IMAGE.elf MESSAGES [SOCKET]";
        let image = std::fs::read(arguments.next().ok_or(usage)?)?;
        let messages = arguments.next().ok_or(usage)?.parse()?;
        let mut spind = Client::connect(arguments.next().as_deref().unwrap_or(DEFAULT_SOCKET))?;
        let context = spind.install(install, &image)?;
        Ok(Self { spind, host: context.host, context: context.id, messages })
    }

    /// Says that packets may come, and waits until the messages have ended.
    pub fn wait(&mut self) -> Outcome {
        println!("waiting for {} messages", self.messages);
        while self.counter("messages")? < self.messages {
            sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// One of the context's counters.
    pub fn counter(&mut self, name: &str) -> Outcome<u64> {
        let contexts = self.spind.contexts()?;
        let own = contexts.into_iter().find(|context| context.context == self.context).ok_or("the context is gone")?;
        Ok(own.counters.into_iter().find(|counter| counter.0 == name).map_or(0, |counter| counter.1))
    }

    /// Host memory; there is some if it was asked for.
    pub fn host(&self) -> Outcome<&Region> {
        Ok(self.host.as_ref().ok_or("no host memory")?)
    }

    /// Words of host memory.
    pub fn words(&self, offset: u64, count: usize) -> Outcome<Vec<u32>> {
        let mut bytes = vec![0; 4 * count];
        self.host()?.read(offset, &mut bytes)?;
        Ok(bytes.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]])).collect())
    }

    /// Vectors of `length` words that the clusters left in host memory, one after the other, added up.
    pub fn sum_of_clusters(&mut self, length: usize) -> Outcome<Vec<u32>> {
        let clusters = self.spind.capabilities()?.machine.clusters as usize;
        let mut sum = vec![0u32; length];
        for vector in self.words(0, clusters * length)?.chunks_exact(length) {
            sum.iter_mut().zip(vector).for_each(|(sum, word)| *sum = sum.wrapping_add(*word));
        }
        Ok(sum)
    }
}

/// Prints the words that are not zero, with their indices.
pub fn print_nonzero(words: &[u32]) {
    for (index, word) in words.iter().enumerate().filter(|(_, word)| **word != 0) {
        println!("{index} {word}");
    }
}
