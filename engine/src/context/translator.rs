//! A thread for translations that turn out to be needed while packets are processed.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use hpu_vm::jit::{Options, Translation};
use spin_pspin::hpu::image::LoadedImage;
use spin_pspin::ids::Handler;

use crate::context::loader::Loader;
use crate::context::niceness::lower_priority;
use crate::context::{Interpreted, Program};

/// A request to translate a context's image.
struct Request {
    context: u32,
    name: Box<str>,
    image: Arc<LoadedImage>,
    handlers: [Option<Handler>; 3],
    options: Options,
}

/// The reply to a request.
pub struct Made {
    /// The id of the context.
    pub context: u32,
    /// The translation, or the reason why there is none.
    pub translation: Result<Arc<Translation>, Interpreted>,
}

/// The worker's end of the translation thread, which is started by the first request.
pub struct Translator {
    loader: Arc<Loader>,
    thread: Option<(Sender<Request>, Receiver<Made>)>,
    /// The number of pending requests.
    waiting: usize,
}

impl Translator {
    /// A translator without a thread.
    #[must_use]
    pub const fn new(loader: Arc<Loader>) -> Self {
        Self { loader, thread: None, waiting: 0 }
    }

    /// Requests a translation for the context with this id and name.
    pub fn request(&mut self, context: u32, name: &str, program: &Program) {
        let Program { image, handlers, options, .. } = program;
        let (image, handlers, options) = (image.clone(), *handlers, *options);
        let (requests, _) = self.thread.get_or_insert_with(|| start(self.loader.clone()));
        if requests.send(Request { context, name: name.into(), image, handlers, options }).is_ok() {
            self.waiting += 1;
        }
    }

    /// The next reply, if there is one.
    pub fn made(&mut self) -> Option<Made> {
        let (_, made) = self.thread.as_ref().filter(|_| self.waiting > 0)?;
        let made = made.try_recv().ok()?;
        self.waiting -= 1;
        Some(made)
    }
}

fn start(loader: Arc<Loader>) -> (Sender<Request>, Receiver<Made>) {
    let (requests, asked) = channel();
    let (answer, made) = channel();
    let spawned = thread::Builder::new().name("translator".into()).spawn(move || serve(&loader, &asked, &answer));
    if let Err(error) = spawned {
        // Requests are not answered in this case.
        tracing::warn!("no thread for translations, so some handlers stay interpreted: {error}");
    }
    (requests, made)
}

fn serve(loader: &Loader, asked: &Receiver<Request>, answer: &Sender<Made>) {
    lower_priority();
    for Request { context, name, image, handlers, options } in asked {
        let translation = loader.translate(&image, &handlers, options, &name);
        if let Err(error) = &translation {
            tracing::warn!("context {context} is interpreted: {error}");
        }
        if answer.send(Made { context, translation: translation.map_err(|error| error.to_string().into()) }).is_err() {
            return;
        }
    }
}
