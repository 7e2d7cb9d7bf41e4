//! Shared code of the shipped handlers' host programs. `PROGRAM IMAGE.elf MESSAGES [SOCKET]` installs the image's
//! handlers and waits until `MESSAGES` messages have completed.
#![allow(dead_code, reason = "each program uses its part of this")]

use std::error::Error;
use std::thread::sleep;
use std::time::Duration;

use libspin::{Client, DEFAULT_SOCKET, Install, Region};

pub type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// Rule that matches the handlers' datagrams.
pub const RULE: &str = "udp dport 9999";

/// A program whose handlers are installed. They are removed when it exits.
pub struct Program {
    pub spind: Client,
    pub host: Option<Region>,
    context: u32,
    messages: u64,
}

impl Program {
    /// Installs the handlers named on the command line.
    pub fn install(install: &Install) -> Outcome<Self> {
        let mut arguments = std::env::args().skip(1);
        let usage = "usage: PROGRAM IMAGE.elf MESSAGES [SOCKET]";
        let image = std::fs::read(arguments.next().ok_or(usage)?)?;
        let messages = arguments.next().ok_or(usage)?.parse()?;
        let mut spind = Client::connect(arguments.next().as_deref().unwrap_or(DEFAULT_SOCKET))?;
        let context = spind.install(install, &image)?;
        Ok(Self { spind, host: context.host, context: context.id, messages })
    }

    /// Prints that packets may be sent, and waits until the messages have completed.
    pub fn wait(&mut self) -> Outcome {
        println!("waiting for {} messages", self.messages);
        while self.counter("messages")? < self.messages {
            sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Reads one of the context's counters.
    pub fn counter(&mut self, name: &str) -> Outcome<u64> {
        let contexts = self.spind.contexts()?;
        let own = contexts.into_iter().find(|context| context.context == self.context).ok_or("the context is gone")?;
        Ok(own.counters.named(name).unwrap_or(0))
    }

    /// Returns the host memory, if some was requested.
    pub fn host(&self) -> Outcome<&Region> {
        Ok(self.host.as_ref().ok_or("no host memory")?)
    }

    /// Reads words of host memory.
    pub fn words(&self, offset: u64, count: usize) -> Outcome<Vec<u32>> {
        let mut bytes = vec![0; 4 * count];
        self.host()?.read(offset, &mut bytes)?;
        Ok(bytes.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]])).collect())
    }

    /// Adds up the vectors of `length` words that the clusters wrote to host memory, one after the other.
    pub fn sum_of_clusters(&mut self, length: usize) -> Outcome<Vec<u32>> {
        let clusters = self.spind.capabilities()?.machine.clusters as usize;
        let mut sum = vec![0u32; length];
        for vector in self.words(0, clusters * length)?.chunks_exact(length) {
            sum.iter_mut().zip(vector).for_each(|(sum, word)| *sum = sum.wrapping_add(*word));
        }
        Ok(sum)
    }
}

/// Prints the non-zero words with their indices.
pub fn print_nonzero(words: &[u32]) {
    for (index, word) in words.iter().enumerate().filter(|(_, word)| **word != 0) {
        println!("{index} {word}");
    }
}
