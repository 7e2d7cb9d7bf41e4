//! Requests that concern one context each, and that all threads answer for their part of it.

use std::sync::Arc;

use spin_abi::control::{Reply, Request};
use spin_nic::affinity::drop_in_background;
use spin_shm::Attached;

use crate::control::server::{Answer, Responder};
use crate::cores::WorkerGroup;
use crate::install::{InstallError, User};
use crate::worker::Worker;

/// A request, to each thread.
type Question = Box<dyn Fn(&mut Worker) -> Result<Answer, String> + Send + Sync>;

/// Requests that wait, and the clients that asked.
#[derive(Default)]
pub(super) struct Questions {
    questions: Vec<Question>,
    askers: Vec<Asker>,
}

struct Asker {
    reply: Responder,
    /// A context and the host address of its host memory, if that was reported.
    host: Option<(u32, u64)>,
}

impl Questions {
    /// Attaches a region of the application to a context.
    pub(super) fn attach(
        &mut self,
        (context, user): (u32, User),
        address: u64,
        region: Arc<Attached>,
        reply: Responder,
    ) {
        self.push(question(move |engine| attach(engine, context, user, address, &region)), reply, None);
    }

    /// Checks that a user may remove a context.
    pub(super) fn may_remove(&mut self, context: u32, user: User, reply: Responder) {
        self.push(question(move |engine| engine.may_remove(context, user)), reply, None);
    }

    /// Any other request.
    pub(super) fn request(&mut self, request: Request, user: User, reply: Responder) {
        let host = match request {
            Request::MapHost { context, address } => Some((context, address)),
            _ => None,
        };
        self.push(Box::new(move |engine| answer(engine, &request, user)), reply, host);
    }

    fn push(&mut self, question: Question, reply: Responder, host: Option<(u32, u64)>) {
        self.questions.push(question);
        self.askers.push(Asker { reply, host });
    }

    /// Answers all. Threads work on them in parallel. Returns whether there was one.
    pub(super) fn answer(self, group: &WorkerGroup) -> bool {
        let Self { questions, askers } = self;
        if questions.is_empty() {
            return false;
        }
        let questions = Arc::new(questions);
        let each = group.all(move |engine| questions.iter().map(|ask| ask(engine)).collect::<Vec<_>>());
        let mut each: Vec<_> = each.into_iter().map(Vec::into_iter).collect();
        for Asker { reply, host } in askers {
            let answer = each.iter_mut().filter_map(Iterator::next).reduce(Result::and);
            let answer = answer.unwrap_or_else(|| Err(InstallError::Stopped.to_string()));
            if let Some((context, address)) = host.filter(|_| answer.is_ok()) {
                group.hooks.set_host(context, address);
            }
            reply.answer(answer);
        }
        true
    }
}

/// A question that is answered without data.
fn question(ask: impl Fn(&mut Worker) -> Result<(), InstallError> + Send + Sync + 'static) -> Question {
    Box::new(move |engine| ask(engine).map(|()| Answer::plain(Reply::Ok)).map_err(|error| error.to_string()))
}

/// Answers a request for one thread's part of a context.
fn answer(engine: &mut Worker, request: &Request, user: User) -> Result<Answer, String> {
    let answer = match *request {
        Request::MapHost { context, address } => {
            engine.map_host(context, user, address).map(|()| Answer::plain(Reply::Ok))
        }
        Request::DetachRegion { context, address } => detach(engine, context, user, address),
        Request::Events { context } => engine
            .event_ring(context, user)
            .map(|region| Answer::Reply(Reply::Events { len: region.len() }, Vec::new(), Some(region))),
        Request::HostMemory { context } => engine.host_memory(context, user).map(|(region, address)| {
            Answer::Reply(Reply::HostMemory { len: region.len(), address }, Vec::new(), Some(region))
        }),
        _ => return Err("the engine is not asked this".to_owned()),
    };
    answer.map_err(|error| error.to_string())
}

/// Attaches a region to one thread's part of a context.
fn attach(
    engine: &mut Worker,
    context: u32,
    user: User,
    address: u64,
    region: &Arc<Attached>,
) -> Result<(), InstallError> {
    Ok(engine.host_of(context, user)?.attach(address, region.clone())?)
}

/// Detaches a region. Unmapping it may take longer than a packet thread can wait.
fn detach(engine: &mut Worker, context: u32, user: User, address: u64) -> Result<Answer, InstallError> {
    drop_in_background(engine.host_of(context, user)?.detach(address)?);
    Ok(Answer::plain(Reply::Ok))
}
