//! Pipeline mode with one thread that runs handlers: what it and the engine, which is the receiving thread's, hand each other.
//!
//! ```text
//! engine --trays--> runner        what is to be run, and on which frames
//!        <--trays-- runner        the same when all of it was begun, with the frames that nobody needs any more
//!        --fresh--> (its Queue)   empty frames, for copies
//!        <--back--- (its Queue)   each of these again, and those that were taken from trays, and what is to be done with them
//!        <--kept--- runner        tasks whose packets the engine is to have again, and why
//!        <--ended-- runner        those of the others that have ended
//! ```
//! What one core writes and another reads costs by the number of its cache lines. So what tasks in a row have in common goes once for all of
//! them, and a task that ends as most do leaves its frame where it is: the runner only reads there, and says how many have ended.

use std::collections::{HashSet, VecDeque};
use std::slice;
use std::sync::Arc;

use spin_abi::verdict::Verdict;
use spin_nic::{Bell, Frame, Queue, prefetch_all, prefetch_to_write};
use spin_sync::{Arrivals, Lane, Noted, Notes, Returns, notes};

use crate::context::Slot;
use crate::handover::{Back, LaneQueue};
use crate::hpu::About;
use crate::inbound::{BATCH, SOON};
use crate::memory::saturate;
use crate::mpq::{MpqId, Stage, Task};
use crate::pipeline::{Binding, Gone, Packet};
use crate::stamp::Stamp;

/// Tasks of a row that are on a tray.
pub(crate) struct OnTray<'t> {
    row: slice::IterMut<'t, Place>,
    /// What comes next.
    behind: &'t [Place],
}

impl<'t> OnTray<'t> {
    /// The next one. Asks for `most` bytes of the packet of one that comes soon.
    #[inline(always)]
    pub(crate) fn next(&mut self, most: usize) -> Option<&'t mut Place> {
        let next = self.row.next();
        let row = self.row.as_slice();
        let soon = row.get(SOON - 1).or_else(|| self.behind.get(SOON - 1 - row.len()));
        if let Some(Place { frame: Some(frame), .. }) = soon {
            frame.prefetch_first(most);
        }
        next
    }
}

/// Tasks on their way or with the runner at a time: some batches, so that neither thread waits for the other.
const TASKS: usize = 4 * BATCH;
/// Trays that are under way at a time. While all are, nothing is staged.
const TRAYS: usize = 32;
/// Blank frames that the runner has: for some batches of handlers that send copies.
const BLANKS: usize = 256;
/// What the runner tells of times before the engine has read it: of each context once a turn.
const CHARGES: usize = 1024;
/// Contexts that go before the runner has forgotten them: of more it is told later.
const GONE: usize = 256;

/// What tasks in a row have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    /// Id of their context: slots are taken again.
    pub(crate) context: u32,
    /// The upper half of their messages' numbers.
    messages: u32,
    /// What handlers know the queue of the only one by, in contexts that name messages.
    flow: Option<u8>,
    slot: u16,
    home: u16,
    /// Of how many tasks that were [kept](Kept) the engine knew when it handed these over.
    seen: u32,
    pub(crate) stage: Stage,
    /// See [`Task::last_use`].
    last_use: bool,
    /// See [`Packet::in_ip_view`],
    in_ip_view: bool,
    /// and [`Packet::gone`].
    gone: Option<Gone>,
    goes_on: GoesOn,
}

/// Whether a message's next task may follow at once, on the same packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GoesOn {
    /// No.
    No,
    /// After a header task, that for payload.
    ToPayload,
    /// After the payload task of the message's last packet, that of the completion handler; and before, after the header task, that for payload.
    ToCompletion,
}

impl Row {
    /// Payload tasks that have their packets for the last time, of messages that are bound to this, when the engine has
    /// [seen](Errand::see) so many that were kept.
    pub(crate) const fn of_payload(context: u32, binding: Binding, seen: u32) -> Self {
        let Binding { slot, home, message } = binding;
        #[allow(clippy::cast_possible_truncation, reason = "a half; and there are fewer contexts and clusters")]
        let (slot, home, messages) = (slot.0 as u16, home as u16, (message >> 32) as u32);
        let (stage, goes_on) = (Stage::Payload, GoesOn::No);
        let (last_use, in_ip_view, gone) = (true, false, None);
        Self { context, messages, flow: None, slot, home, seen, stage, last_use, in_ip_view, gone, goes_on }
    }

    /// Whether tasks of a message that is bound to this may be in it, if it is their context's.
    #[inline]
    pub(crate) fn has(&self, binding: &Binding) -> bool {
        self.home() == binding.home && u64::from(self.messages) == binding.message >> 32
    }

    pub(crate) fn slot(&self) -> Slot {
        Slot(self.slot.into())
    }

    pub(crate) fn home(&self) -> u32 {
        self.home.into()
    }

    /// Whether nobody needs the packets after these tasks.
    pub(crate) fn spends(&self) -> bool {
        self.last_use && self.gone.is_none()
    }

    /// That of the tasks which follow at once.
    pub(crate) fn next(&self) -> Option<Self> {
        let (stage, goes_on) = match (self.stage, self.goes_on) {
            (Stage::Header, GoesOn::ToPayload) => (Stage::Payload, GoesOn::No),
            (Stage::Header, GoesOn::ToCompletion) => (Stage::Payload, GoesOn::ToCompletion),
            (Stage::Payload, GoesOn::ToCompletion) => (Stage::Completion, GoesOn::No),
            _ => return None,
        };
        Some(Self { stage, goes_on, last_use: goes_on == GoesOn::No, ..*self })
    }
}

/// What is a task's own, but for its frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Own {
    /// Its message's queue,
    pub(crate) mpq: MpqId,
    /// and the lower half of its number.
    message: u32,
}

/// A task of a row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Errand {
    pub(crate) row: Row,
    pub(crate) own: Own,
    pub(crate) arrived: Stamp,
}

impl Errand {
    /// A task of a context with this id, and its frame. `flow` is what handlers know its queue by, if that is not the queue itself.
    #[inline]
    pub(crate) fn of(task: Task<Binding, Packet>, context: u32, flow: Option<u8>) -> (Self, Frame) {
        let Task { mpq, stage, context: binding, packet, last_use } = task;
        let Packet { frame, arrived, gone, in_ip_view } = packet;
        let row = Row { flow, stage, last_use, in_ip_view, gone, ..Row::of_payload(context, binding, 0) };
        (Self { row, own: Own::of(mpq, binding.message), arrived }, frame)
    }

    /// The message's next task may follow at once.
    pub(crate) const fn may_go_on(&mut self, goes_on: GoesOn) {
        self.row.goes_on = goes_on;
    }

    /// The engine has seen so many that were kept.
    pub(crate) const fn see(&mut self, seen: u32) {
        self.row.seen = seen;
    }

    /// The task again.
    pub(crate) fn task(self, frame: Frame) -> Task<Binding, Packet> {
        let Row { stage, last_use, in_ip_view, gone, .. } = self.row;
        let packet = Packet { frame, arrived: self.arrived, gone, in_ip_view };
        Task { mpq: self.own.mpq, stage, context: self.binding(), packet, last_use }
    }

    pub(crate) fn binding(&self) -> Binding {
        Binding { slot: self.row.slot(), home: self.row.home(), message: self.own.number(&self.row) }
    }

    /// What handlers know its queue by, if that is not the queue itself.
    pub(crate) const fn flow(&self) -> Option<u8> {
        self.row.flow
    }
}

/// Some tasks of a row.
#[derive(Clone, Copy, Debug)]
struct Part {
    row: Row,
    count: u32,
    /// They [follow others](Errands::follow), and are on no tray.
    follows: bool,
    /// When the packet of the first one arrived. The others did not long after.
    arrived: Stamp,
}

/// A task on a tray.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) own: Own,
    /// Its frame, while it is here.
    pub(crate) frame: Option<Frame>,
}

/// A task that follows another one at once.
#[derive(Debug)]
struct Follower {
    own: Own,
    frame: Frame,
    /// Where on the tray at hand its frame was.
    place: usize,
}

/// Tasks that are handed over together.
#[derive(Debug)]
struct Tray {
    rows: Vec<Part>,
    tasks: Vec<Place>,
    /// When it comes back: how many were taken at its end,
    taken: usize,
    /// and of how many rows was told by then.
    told: u32,
}

impl Tray {
    fn new() -> Self {
        Self { rows: Vec::with_capacity(BATCH), tasks: Vec::with_capacity(BATCH), taken: 0, told: 0 }
    }

    /// Asks for what the other thread has written there.
    fn ask_for(&self) {
        prefetch_all(&self.rows);
        prefetch_all(&self.tasks);
    }
}

/// Trays that are asked for before they come, and whose places in rings are.
const TRAYS_ASKED: usize = 2;

/// A tray that is back. Its lines are asked for as ones to be written before any is read: they come all at once then, and are here when the tray
/// is filled again. One that was read first would be the runner's, too, and a processor need not heed that it is asked for once more.
#[derive(Debug)]
struct Returned {
    rows: Vec<Part>,
    /// Those that have not ended yet, and those that were taken.
    tasks: VecDeque<Place>,
    taken: usize,
    told: u32,
}

impl Returned {
    fn new(Tray { rows, tasks, taken, told }: Tray) -> Self {
        prefetch_to_write(&tasks);
        prefetch_to_write(&rows);
        Self { rows, tasks: tasks.into(), taken, told }
    }

    /// Whether all have ended, or were taken, and that is known, when so many rows are: it may be back before its last rows are told of.
    fn is_over(&self, known: u32) -> bool {
        self.tasks.len() <= self.taken && known.wrapping_sub(self.told).cast_signed() >= 0
    }

    /// Takes the first `count`. Returns how many frames they have left.
    fn take(&mut self, count: usize, mut of: impl FnMut(MpqId), mut each: impl FnMut(Frame)) -> usize {
        let mut frames = 0;
        for Place { own, frame } in self.tasks.drain(..count) {
            of(own.mpq);
            if let Some(frame) = frame {
                frames += 1;
                each(frame);
            }
        }
        frames
    }

    /// To be filled again.
    fn empty(self) -> Tray {
        let Self { mut rows, mut tasks, .. } = self;
        debug_assert!(tasks.iter().all(|task| task.frame.is_none()), "frames were taken");
        rows.clear();
        tasks.clear();
        Tray { rows, tasks: tasks.into(), taken: 0, told: 0 }
    }
}

/// Tasks that have ended, and whose packets have gone where their handlers wanted them, or which others follow at once on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    /// Id of their context.
    pub(crate) context: u32,
    slot: u16,
    pub(crate) stage: Stage,
    /// The next ones are in flight.
    pub(crate) go_on: bool,
    /// They are on their trays, behind so many that were taken from there; or their queues go by themselves.
    on_trays: Option<u32>,
    /// How many.
    pub(crate) count: u32,
}

impl Ended {
    pub(crate) fn slot(&self) -> Slot {
        Slot(self.slot.into())
    }
}

/// What became of a task whose packet the engine has again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It has ended; a later task needs the packet, or a verdict decides on it.
    Ended(Option<Verdict>),
    /// It was not begun: the runner does not have its context.
    NotRun,
    /// It was not begun, since an earlier one of its message has given that up.
    GivenUp,
    /// It waited on its HPU when its context went.
    Abandoned,
}

/// A task whose packet comes back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kept {
    pub(crate) errand: Errand,
    pub(crate) outcome: Outcome,
    /// Of those that have [ended](Ended), so many were told of before, in all.
    pub(crate) after: u32,
}

/// Time that tasks of a context took.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Charge {
    pub(crate) slot: Slot,
    /// The context's id.
    pub(crate) context: u32,
    /// How many have been begun.
    pub(crate) tasks: u32,
    pub(crate) nanoseconds: u64,
}

/// The engine's end.
#[derive(Debug)]
pub struct Dispatcher {
    trays: Lane<Tray, (), Tray>,
    /// What is handed over next. It is copied to a tray then, all at once: a processor waits for each line of those that the other one has read
    /// at the first store there, and has room for some tens of stores that wait.
    staged: Tray,
    /// Trays that are empty.
    empty: Vec<Tray>,
    /// Those that are back,
    returned: VecDeque<Returned>,
    /// and how many rows are known to have ended.
    known: u32,
    /// Blank frames there, and all that come without a tray.
    frames: Lane<Frame, Frame, Frame>,
    back: Noted<Back>,
    /// Frames that just came back.
    frames_back: Vec<Frame>,
    kept: Noted<Kept>,
    ended: Noted<Ended>,
    ended_of: Noted<MpqId>,
    charges: Noted<Charge>,
    /// Ids of contexts that have gone.
    gone: Notes<u32>,
}

/// The runner's end.
#[derive(Debug)]
pub struct Errands {
    arrivals: Arrivals<Tray>,
    returns: Returns<(), Tray>,
    kept: Notes<Kept>,
    kept_frames: Vec<Frame>,
    ended: Notes<Ended>,
    ended_of: Notes<MpqId>,
    charges: Notes<Charge>,
    gone: Noted<u32>,
    /// The tray that is at hand, and where the next task is,
    tray: Option<Tray>,
    place: usize,
    /// those that are here behind it,
    trays: VecDeque<Tray>,
    /// and how many tasks of these are yet to be begun.
    left: usize,
    /// The rows of the tray at hand, and of what follows.
    here: VecDeque<Part>,
    /// Places of trays that the tasks of a row which have ended are in, and before them those of which the tasks were taken, since that was
    /// told.
    passed: u32,
    taken: u32,
    /// Tasks of rows that follow others at once, the next one last,
    followers: Vec<Follower>,
    /// and of one that is to come.
    following: Vec<Follower>,
    /// Of how many rows was told that they have ended.
    told: u32,
    /// How many were kept, and the number of the last one that could not be begun, until the engine has seen it.
    kept_so_far: u32,
    refused: Option<u32>,
    /// Those that wait for an HPU of their context, of each context in order.
    waiting: Vec<VecDeque<(Errand, Frame)>>,
    /// Messages that were given up, until the engine has seen that: by number of the task that was kept,
    given_up: VecDeque<(u32, Own)>,
    /// and by themselves.
    dead: HashSet<Own>,
    /// Tasks of these that waited for an HPU, until the next one is kept.
    dying: VecDeque<(Errand, Frame)>,
    /// The engine's.
    engine: Arc<Bell>,
}

/// What the two threads need whose bells these are: the engine's end, and both of the runner's. No frame is longer than `max_frame`.
#[must_use]
pub fn errands(max_frame: usize, engine: Arc<Bell>, runner: Arc<Bell>) -> (Dispatcher, Errands, LaneQueue) {
    let size = TASKS + BLANKS;
    let (trays, arrivals, trays_back) = spin_sync::lane(TRAYS, 0, engine.clone(), runner.clone());
    // Frames go there on trays, or as blanks.
    let (frames, _, frames_back) = spin_sync::lane(size, BLANKS, engine.clone(), runner);
    let (back, to_heed) = notes(size);
    // Each task may be followed by others: three in all.
    let ((kept, to_keep), (ended, to_move_on), (ended_of, of)) = (notes(size), notes(3 * size), notes(3 * size));
    let ((charges, to_charge), (gone, to_forget)) = (notes(CHARGES), notes(GONE));
    let dispatcher = Dispatcher {
        trays,
        staged: Tray::new(),
        empty: (0..TRAYS).map(|_| Tray::new()).collect(),
        returned: VecDeque::with_capacity(TRAYS),
        known: 0,
        frames,
        back: to_heed,
        frames_back: Vec::with_capacity(size),
        kept: to_keep,
        ended: to_move_on,
        ended_of: of,
        charges: to_charge,
        gone,
    };
    let own = Errands {
        arrivals,
        returns: trays_back,
        kept,
        kept_frames: Vec::with_capacity(BATCH),
        ended,
        ended_of,
        charges,
        gone: to_forget,
        tray: None,
        place: 0,
        trays: VecDeque::with_capacity(TRAYS),
        left: 0,
        here: VecDeque::with_capacity(size),
        passed: 0,
        taken: 0,
        followers: Vec::with_capacity(BATCH),
        following: Vec::with_capacity(BATCH),
        told: 0,
        kept_so_far: 0,
        refused: None,
        waiting: Vec::new(),
        given_up: VecDeque::with_capacity(size),
        dead: HashSet::with_capacity(size),
        dying: VecDeque::new(),
        engine,
    };
    (dispatcher, own, LaneQueue::new(frames_back, back, max_frame))
}

impl Dispatcher {
    /// The most frames that are on the way or with the runner at a time.
    #[must_use]
    pub const fn most() -> usize {
        TASKS + BLANKS
    }

    /// The most tasks that are on their way or with the runner at a time.
    pub(crate) const fn tasks() -> u32 {
        TASKS as u32
    }

    /// How many more tasks may be staged.
    #[inline]
    pub(crate) fn credit(&self) -> usize {
        if self.empty.is_empty() {
            return 0;
        }
        let staged = self.staged.tasks.len();
        self.frames.credit().saturating_sub(staged).min(BATCH - staged)
    }

    /// How many frames are staged, or with the runner without being blank.
    pub(crate) fn out(&self) -> usize {
        self.frames.out() + self.staged.tasks.len()
    }

    /// Has a task handed over, for which there is [credit](Dispatcher::credit).
    #[inline]
    pub(crate) fn stage(&mut self, errand: Errand, frame: Frame) {
        let Errand { row, own, arrived } = errand;
        let rows = &mut self.staged.rows;
        match rows.last_mut() {
            Some(last) if last.row == row && row.flow.is_none() => last.count += 1,
            _ => rows.push(Part { row, count: 1, follows: false, arrived }),
        }
        self.stage_more(own, frame);
    }

    /// The same of one that is counted with its row: see [`Dispatcher::stage_row`].
    #[inline]
    pub(crate) fn stage_more(&mut self, own: Own, frame: Frame) {
        self.staged.tasks.push(Place { own, frame: Some(frame) });
    }

    /// So many tasks of a row were staged, of which the first one's packet arrived then.
    pub(crate) fn stage_row(&mut self, row: Row, count: u32, arrived: Stamp) {
        if count > 0 {
            self.staged.rows.push(Part { row, count, follows: false, arrived });
        }
    }

    /// Hands over what is staged, and blank frames.
    pub(crate) fn hand_over(&mut self, blank: impl FnMut() -> Option<Frame>) {
        // Before what they may be needed for.
        self.frames.hand_over(blank);
        let count = self.staged.tasks.len();
        let Some(mut tray) = self.empty.pop_if(|_| count > 0) else { return };
        self.frames.lend(count);
        tray.tasks.append(&mut self.staged.tasks);
        tray.rows.append(&mut self.staged.rows);
        self.trays.staged.push(tray);
        self.trays.hand_over(|| None);
        self.trays.places(TRAYS_ASKED, prefetch_to_write);
    }

    /// Takes what came back: frames, by what is to be done with them; tasks with their packets, and those without; what tasks took.
    /// Returns how many frames.
    pub(crate) fn take_back(
        &mut self,
        mut each: impl FnMut(Frame, Back),
        kept: &mut Vec<(Kept, Frame)>,
        ended: &mut Vec<Ended>,
        of: &mut Vec<MpqId>,
        charge: impl FnMut(&Charge),
    ) -> usize {
        self.tell_of_gone();
        self.frames.ahead(prefetch_all);
        let mut count = self.frames.take_back(|frame| self.frames_back.push(frame));
        let mut frames_back = self.frames_back.drain(..);
        let tasks = &mut self.kept;
        self.back.read(count, |&back| {
            let Some(frame) = frames_back.next() else { return };
            if back == Back::Passing {
                let mut frame = Some(frame);
                tasks.read(1, |&task| kept.extend(frame.take().map(|frame| (task, frame))));
            } else {
                each(frame, back);
            }
        });
        drop(frames_back);
        // What there is to tell of tasks is written before the frames of their packets are handed over, and after the trays that it is about;
        // of which queues, before of which kind.
        self.ended.copy(self.ended.len(), ended);
        self.trays.take_back(|tray| self.returned.push_back(Returned::new(tray)));
        for row in &*ended {
            match row.on_trays {
                None => self.ended_of.copy(row.count as usize, of),
                Some(taken) => {
                    count += self.clear(taken, row.count, |mpq| of.push(mpq), |frame| each(frame, Back::Spent))
                }
            }
            self.known = self.known.wrapping_add(1);
        }
        count += self.put_away(|frame| each(frame, Back::Spent));
        self.charges.read(self.charges.len(), charge);
        count
    }

    /// Tasks have ended on the first tray, behind so many that were taken from there. Returns how many frames they left.
    fn clear(&mut self, taken: u32, count: u32, of: impl FnMut(MpqId), mut each: impl FnMut(Frame)) -> usize {
        let frames = self.put_away(&mut each);
        let Some(tray) = self.returned.front_mut() else { return frames };
        let left = tray.take(taken as usize, |_| (), &mut each) + tray.take(count as usize, of, each);
        self.frames.have_back(left);
        frames + left
    }

    /// Trays are empty of which all tasks have ended, or were taken. Returns how many frames these left.
    fn put_away(&mut self, mut each: impl FnMut(Frame)) -> usize {
        let mut frames = 0;
        while let Some(mut tray) = self.returned.pop_front_if(|tray| tray.is_over(self.known)) {
            frames += tray.take(tray.tasks.len(), |_| (), &mut each);
            self.empty.push(tray.empty());
        }
        self.frames.have_back(frames);
        frames
    }

    /// Whether anything came back.
    pub(crate) fn has_news(&self) -> bool {
        self.frames.has_news() || !self.ended.is_empty()
    }

    /// Has the runner forget a context.
    pub(crate) fn forget(&mut self, context: u32) {
        self.gone.staged.push(context);
        self.tell_of_gone();
    }

    fn tell_of_gone(&mut self) {
        while !self.gone.staged.is_empty() && self.gone.write_if_room(1) {
            self.frames.ring();
        }
    }
}

impl Errands {
    /// What rings when there are more.
    #[must_use]
    pub const fn bell(&self) -> &Arc<Bell> {
        self.arrivals.bell()
    }

    /// Whether none will come any more, and none is here.
    pub(crate) fn is_over(&self) -> bool {
        self.left() == 0 && self.waiting.is_empty() && self.arrivals.is_over()
    }

    /// Whether some have come, or are here.
    pub(crate) fn have_come(&self) -> bool {
        self.left() > 0 || !self.waiting.is_empty() || !self.arrivals.is_empty()
    }

    /// A context that is to be forgotten.
    pub(crate) fn gone(&mut self) -> Option<u32> {
        let mut id = None;
        self.gone.read(self.gone.len().min(1), |&gone| id = Some(gone));
        id
    }

    /// Takes trays with about a batch of those that have come, if none is here; more if the next one's tasks, of which it has a batch at the most,
    /// are among `most`. Returns how many tasks are here.
    pub(crate) fn take(&mut self, most: usize) -> usize {
        if self.left() == 0 {
            let Self { arrivals, trays, left, .. } = self;
            let mut count = 0;
            arrivals.ahead(TRAYS, |there| {
                for tray in there {
                    if *left < BATCH || *left + BATCH <= most {
                        *left += tray.tasks.len();
                        count += 1;
                    }
                }
            });
            arrivals.take(count, |tray| {
                tray.ask_for();
                trays.push_back(tray);
            });
            self.next_tray();
        }
        self.left()
    }

    /// Gives the tray back of which all tasks were begun, and goes on to the next one.
    fn next_tray(&mut self) {
        if let Some(mut tray) = self.tray.take() {
            tray.taken = std::mem::take(&mut self.taken) as usize;
            tray.told = self.told;
            self.returns.staged.push(tray);
        }
        self.place = 0;
        self.tray = self.trays.pop_front();
        if self.tray.is_some() {
            self.ask_for_next();
        }
        self.here.extend(self.tray.iter().flat_map(|tray| &tray.rows));
    }

    /// The next ones are far away, where the other thread has written them, and come while those at hand are run.
    fn ask_for_next(&mut self) {
        self.arrivals.ahead(TRAYS_ASKED, |next| next.iter().for_each(Tray::ask_for));
    }

    /// How many tasks that are here are yet to be begun.
    pub(crate) const fn left(&self) -> usize {
        self.left + self.followers.len()
    }

    /// How many tasks of the first row are here.
    pub(crate) fn here_of_row(&self) -> usize {
        self.here.front().map_or(0, |first| first.count as usize)
    }

    /// Whether those of the first row follow others, and are on no tray.
    pub(crate) fn follow_others(&self) -> bool {
        self.here.front().is_some_and(|first| first.follows)
    }

    /// The next task.
    pub(crate) fn next(&self) -> Option<Errand> {
        let &Part { row, arrived, follows, .. } = self.here.front()?;
        let own = if follows { self.followers.last()?.own } else { self.tray.as_ref()?.tasks.get(self.place)?.own };
        Some(Errand { row, own, arrived })
    }

    /// The next task's own and its frame, which stay where they are.
    #[inline]
    pub(crate) fn look(&mut self, follows: bool) -> Option<(Own, &mut Frame)> {
        if follows {
            return self.followers.last_mut().map(|follower| (follower.own, &mut follower.frame));
        }
        let Place { own, frame } = self.tray.as_mut()?.tasks.get_mut(self.place)?;
        Some((*own, frame.as_mut()?))
    }

    /// The tasks of the first row, which is on the tray at hand, up to so many; they stay where they are.
    pub(crate) fn on_tray(&mut self, most: usize) -> Option<OnTray<'_>> {
        let here = self.tray.as_mut()?.tasks.get_mut(self.place..)?;
        let (row, behind) = here.split_at_mut(most.min(here.len()));
        let next = || self.trays.front().map_or(&[][..], |next| &next.tasks);
        Some(OnTray { row: row.iter_mut(), behind: if behind.is_empty() { next() } else { behind } })
    }

    /// The next task, which is on a tray, has ended there.
    #[inline]
    pub(crate) const fn pass(&mut self) {
        self.pass_all(1);
    }

    /// The same of so many.
    pub(crate) const fn pass_all(&mut self, count: usize) {
        self.place += count;
        self.left -= count;
        // A tray has room for a batch.
        self.passed += count as u32;
    }

    /// The same, and its frame goes elsewhere.
    #[inline]
    pub(crate) fn pass_without_frame(&mut self) -> Option<Frame> {
        let frame = self.tray.as_mut()?.tasks.get_mut(self.place)?.frame.take();
        self.pass();
        frame
    }

    /// The next task, which followed another one, has ended, and its frame is where it came from on its tray, if it `stays`. Else that is
    /// returned.
    #[inline]
    pub(crate) fn pass_follower(&mut self, stays: bool) -> Option<Frame> {
        let Follower { own, frame, place } = self.followers.pop()?;
        self.end(own.mpq);
        match self.tray.as_mut().and_then(|tray| tray.tasks.get_mut(place)).filter(|_| stays) {
            Some(place) => {
                place.frame = Some(frame);
                None
            }
            None => Some(frame),
        }
    }

    /// Takes the next task of the row. They are to be [counted](Errands::count_begun).
    #[inline]
    pub(crate) fn pop(&mut self, follows: bool) -> Option<(Own, Frame)> {
        if follows {
            return self.followers.pop().map(|Follower { own, frame, .. }| (own, frame));
        }
        self.tell_passed();
        let Place { own, frame } = self.tray.as_mut()?.tasks.get_mut(self.place)?;
        let task = (*own, frame.take()?);
        self.place += 1;
        self.left -= 1;
        self.taken += 1;
        Some(task)
    }

    /// So many tasks of the first row were begun. When it is known whether others follow them, it [goes on](Errands::go_on).
    pub(crate) fn count_begun(&mut self, count: u32) {
        self.tell_passed();
        if let Some(first) = self.here.front_mut() {
            first.count -= count;
            if first.count == 0 {
                self.here.pop_front();
            }
        }
    }

    /// Goes on to the next tray, if all tasks of the one at hand were begun, and those that follow them.
    pub(crate) fn go_on(&mut self) {
        if self.here.is_empty() {
            self.next_tray();
        }
    }

    /// Asks for what a task is going to look at soon.
    #[inline]
    pub(crate) fn ask_ahead(&self, looked_at: usize) {
        let Some(tray) = &self.tray else { return };
        let soon = self.place + SOON;
        let place = tray.tasks.get(soon).or_else(|| self.trays.front()?.tasks.get(soon - tray.tasks.len()));
        if let Some(Place { frame: Some(frame), .. }) = place {
            frame.prefetch_first(looked_at);
        }
    }

    /// Tells of the tasks of the first row that have [ended on their tray](Errands::pass).
    fn tell_passed(&mut self) {
        if let Some(&Part { row: Row { context, slot, stage, .. }, .. }) = self.here.front()
            && self.passed > 0
        {
            let (taken, count) = (std::mem::take(&mut self.taken), std::mem::take(&mut self.passed));
            self.tell_of(Ended { context, slot, stage, go_on: false, on_trays: Some(taken), count });
        }
    }

    /// A task has ended, and its packet is where its handler wanted it. Such are to be [told of](Errands::tell_ended).
    #[inline]
    pub(crate) fn end(&mut self, mpq: MpqId) {
        self.ended_of.staged.push(mpq);
    }

    /// So many tasks of a row have [ended](Errands::end) in this order, or others follow at once.
    pub(crate) fn tell_ended(&mut self, row: &Row, count: u32, go_on: bool) {
        if count > 0 {
            let &Row { context, slot, stage, .. } = row;
            self.tell_of(Ended { context, slot, stage, go_on, on_trays: None, count });
        }
    }

    fn tell_of(&mut self, ended: Ended) {
        self.ended.staged.push(ended);
        self.told = self.told.wrapping_add(1);
    }

    /// The next task has ended, and that which follows it on the same packet is to be begun when those of its row are.
    #[inline]
    pub(crate) fn follow(&mut self, follows: bool) -> Option<()> {
        let follower = if follows {
            self.followers.pop()?
        } else {
            let place = self.place;
            let (own, frame) = self.pop(false)?;
            Follower { own, frame, place }
        };
        self.end(follower.own.mpq);
        self.following.push(follower);
        Some(())
    }

    /// Tasks that follow others are the next ones, as a row.
    pub(crate) fn line_up(&mut self, row: Row, arrived: Stamp) {
        let count = saturate(self.following.len() as u64);
        if count > 0 {
            self.followers.extend(self.following.drain(..).rev());
            self.here.push_front(Part { row, count, follows: true, arrived });
        }
    }

    /// Whether tasks that may be followed by others are: all that were handed over before them have been begun here, if no task of their
    /// context waits.
    pub(crate) const fn may_follow(&self, row: &Row) -> bool {
        matches!(row.stage, Stage::Header) || self.refused.is_none()
    }

    /// Forgets what the engine knew when it handed a row over.
    pub(crate) fn forget_seen(&mut self, row: &Row) {
        let is_seen = |number: u32| row.seen.wrapping_sub(number).cast_signed() > 0;
        self.refused = self.refused.filter(|&number| !is_seen(number));
        while let Some((_, own)) = self.given_up.pop_front_if(|(number, _)| is_seen(*number)) {
            self.dead.remove(&own);
        }
    }

    /// Has a task wait for an HPU.
    pub(crate) fn wait(&mut self, errand: Errand, frame: Frame) {
        match self.waiting.iter_mut().find(|tasks| is_of(tasks, errand.row.context)) {
            Some(tasks) => tasks.push_back((errand, frame)),
            None => self.waiting.push(VecDeque::from([(errand, frame)])),
        }
    }

    /// Whether tasks of a context wait.
    pub(crate) fn has_waiting(&self, context: u32) -> bool {
        self.waiting.iter().any(|tasks| is_of(tasks, context))
    }

    /// The first one that waits, of the context at a place among those that have some.
    pub(crate) fn waiting(&self, place: usize) -> Option<Errand> {
        self.waiting.get(place)?.front().map(|&(errand, _)| errand)
    }

    /// Takes it.
    pub(crate) fn end_wait(&mut self, place: usize) -> Option<(Errand, Frame)> {
        let tasks = self.waiting.get_mut(place)?;
        let first = tasks.pop_front();
        if tasks.is_empty() {
            self.waiting.swap_remove(place);
        }
        first
    }

    /// Gives those back that wait of a context which goes.
    pub(crate) fn abandon_waiting(&mut self, context: u32) {
        let gone = self.waiting.extract_if(.., |tasks| is_of(tasks, context)).collect::<Vec<_>>();
        for (errand, frame) in gone.into_iter().flatten() {
            self.refuse(errand, frame);
        }
    }

    /// The message of a task is given up that is kept next: no other task of it is to be begun.
    pub(crate) fn give_up(&mut self, errand: &Errand) {
        let (own, context) = (errand.own, errand.row.context);
        self.given_up.push_back((self.kept_so_far, own));
        self.dead.insert(own);
        let Some(tasks) = self.waiting.iter_mut().find(|tasks| is_of(tasks, context)) else { return };
        // Behind the one that gave it up.
        (self.dying, *tasks) = std::mem::take(tasks).into_iter().partition(|(errand, _)| errand.own == own);
        self.waiting.retain(|tasks| !tasks.is_empty());
    }

    /// Whether a task's message was given up.
    #[inline]
    pub(crate) fn is_given_up(&self, own: &Own) -> bool {
        !self.dead.is_empty() && self.dead.contains(own)
    }

    /// The engine is to have a task's packet.
    #[inline]
    pub(crate) fn keep(&mut self, errand: Errand, frame: Frame, outcome: Outcome) {
        self.kept_so_far = self.kept_so_far.wrapping_add(1);
        self.kept.staged.push(Kept { errand, outcome, after: self.told });
        self.kept_frames.push(frame);
        while let Some((errand, frame)) = self.dying.pop_front() {
            self.keep(errand, frame, Outcome::GivenUp);
        }
    }

    /// The same of one that cannot be begun here.
    pub(crate) fn refuse(&mut self, errand: Errand, frame: Frame) {
        self.refused = Some(self.kept_so_far);
        self.keep(errand, frame, Outcome::NotRun);
    }

    /// Tasks of a context took some time.
    pub(crate) fn charge(&mut self, more: Charge) {
        match self.charges.staged.iter_mut().find(|charge| charge.context == more.context) {
            Some(charge) => {
                charge.tasks += more.tasks;
                charge.nanoseconds += more.nanoseconds;
            }
            None => self.charges.staged.push(more),
        }
    }

    /// Tells what there is to tell, before the frames go, and hands those over to `nic` that are kept.
    /// While a tray is begun and not over nothing is told, so that what is told of its tasks comes with it or later, and of all in order.
    pub(crate) fn tell(&mut self, nic: &mut dyn Queue) {
        // What there is no room for is told later.
        self.charges.write_if_room(self.charges.staged.len());
        if self.place > 0 {
            return;
        }
        self.returns.give_back();
        self.returns.places(TRAYS_ASKED, prefetch_to_write);
        self.kept.write(self.kept.staged.len());
        let (count, rows) = (self.ended_of.staged.len(), self.ended.staged.len());
        self.ended_of.write(count);
        self.ended_of.places(count, prefetch_to_write);
        self.ended.write(rows);
        self.ended.places(rows, prefetch_to_write);
        if rows > 0 {
            // There may be no frame to come with it.
            self.engine.ring();
        }
        nic.pass_to_kernel(&mut self.kept_frames);
    }
}

/// Whether tasks that wait are a context's.
fn is_of(tasks: &VecDeque<(Errand, Frame)>, context: u32) -> bool {
    tasks.front().is_some_and(|(errand, _)| errand.row.context == context)
}

impl Own {
    #[inline]
    pub(crate) const fn of(mpq: MpqId, message: u64) -> Self {
        #[allow(clippy::cast_possible_truncation, reason = "a half")]
        let message = message as u32;
        Self { mpq, message }
    }

    /// The task's message, as handlers of plain contexts know it.
    #[inline]
    pub(crate) fn about(&self, row: &Row) -> About {
        About { flow: self.mpq.0, message: self.number(row) }
    }

    /// The number of its message.
    #[inline]
    fn number(&self, row: &Row) -> u64 {
        u64::from(row.messages) << 32 | u64::from(self.message)
    }
}

#[cfg(test)]
mod tests {
    use spin_nic::memory::pair;
    use spin_nic::{Bell, Queue, TxQueue};

    use super::{Errand, GoesOn, Outcome, Own, Part, errands};
    use crate::context::Slot;
    use crate::handover::Back;
    use crate::inbound::BATCH;
    use crate::mpq::{MpqId, Stage, Task};
    use crate::pipeline::{Binding, Packet};
    use crate::stamp::Stamp;

    /// A number of which both halves count.
    const MESSAGES: u64 = (7 << 32) - 1;

    fn task(frame: spin_nic::Frame, mpq: u32, stage: Stage, last_use: bool) -> Task<Binding, Packet> {
        let context = Binding { slot: Slot(3), home: 2, message: MESSAGES + u64::from(mpq) };
        let packet = Packet::new(frame, Stamp::at(std::time::Duration::from_micros(5)));
        Task { mpq: MpqId(mpq), stage, context, packet, last_use }
    }

    #[test]
    fn what_goes_with_each_task_is_short() {
        assert_eq!(size_of::<Own>(), 8);
        assert!(size_of::<Part>() <= 40, "{}", size_of::<Part>());
    }

    #[test]
    fn tasks_arrive_as_they_were_and_in_rows() {
        let bell = || Bell::new().expect("an event");
        let (mut nic, _far) = pair(1024).expect("frames");
        let (mut dispatcher, mut own, mut queue) = errands(2048, bell(), bell());
        let stages = [Stage::Header, Stage::Header, Stage::Payload, Stage::Payload, Stage::Payload, Stage::Completion];
        for (mpq, stage) in (1..).zip(stages) {
            let frame = nic.allocate().expect("there are many");
            let (errand, frame) = Errand::of(task(frame, mpq, stage, stage != Stage::Header), 7, None);
            dispatcher.stage(errand, frame);
        }
        dispatcher.hand_over(|| None);
        assert_eq!(own.take(BATCH), stages.len());
        let mut rows = Vec::new();
        while let Some(first) = own.next() {
            let count = own.here_of_row();
            rows.push((first.row.stage, count));
            for _ in 0..count {
                let next = own.next().expect("it is counted");
                let (_, frame) = own.pop(own.follow_others()).expect("it is here");
                own.count_begun(1);
                own.go_on();
                let mpq = next.own.mpq;
                let task = next.task(frame);
                assert_eq!((task.mpq, task.context.slot, task.context.home), (mpq, Slot(3), 2));
                assert_eq!(task.context.message, MESSAGES + u64::from(mpq.0));
                assert_eq!((task.stage, task.last_use), (first.row.stage, first.row.stage != Stage::Header));
                queue.recycle(task.packet.frame);
            }
        }
        assert_eq!(rows, [(Stage::Header, 2), (Stage::Payload, 3), (Stage::Completion, 1)]);
    }

    #[test]
    fn what_follows_comes_before_what_was_behind_it() {
        let bell = || Bell::new().expect("an event");
        let (mut nic, _far) = pair(1024).expect("frames");
        let (mut dispatcher, mut own, mut queue) = errands(2048, bell(), bell());
        for (mpq, stage) in [(1, Stage::Header), (2, Stage::Header), (3, Stage::Payload)] {
            let frame = nic.allocate().expect("there are many");
            let (mut errand, frame) = Errand::of(task(frame, mpq, stage, stage == Stage::Payload), 7, None);
            if stage == Stage::Header {
                errand.may_go_on(GoesOn::ToCompletion);
            }
            dispatcher.stage(errand, frame);
        }
        dispatcher.hand_over(|| None);
        own.take(BATCH);
        let mut seen = Vec::new();
        while let Some(first) = own.next() {
            let (count, next) = (own.here_of_row(), first.row.next().filter(|_| own.may_follow(&first.row)));
            let follows = own.follow_others();
            for place in 0..count {
                seen.push((first.row.stage, own.look(follows).expect("it is here").0.mpq.0));
                match next {
                    Some(_) => own.follow(follows).expect("it is here"),
                    None if follows => {
                        // The first one's frame goes elsewhere.
                        let frame = own.pass_follower(place > 0);
                        assert_eq!(frame.is_some(), place == 0);
                        frame.into_iter().for_each(|frame| queue.recycle(frame));
                    }
                    None => own.pass(),
                }
            }
            own.count_begun(count as u32);
            if follows || next.is_some() {
                own.tell_ended(&first.row, count as u32, next.is_some());
            }
            if let Some(next) = next {
                own.line_up(next, first.arrived);
            }
            own.go_on();
        }
        let both = |stage| [(stage, 1), (stage, 2)];
        let all = [both(Stage::Header), both(Stage::Payload), both(Stage::Completion)].concat();
        assert_eq!(seen, [&all[..], &[(Stage::Payload, 3)]].concat());
        own.tell(&mut queue);
        queue.flush().expect("a lane does not fail");
        let (mut kept, mut ended, mut of, mut spent) = (Vec::new(), Vec::new(), Vec::new(), 0);
        let each = |frame, back| {
            spent += usize::from(back == Back::Spent);
            nic.recycle(frame);
        };
        dispatcher.take_back(each, &mut kept, &mut ended, &mut of, |_| {});
        assert_eq!((kept.len(), spent, of.len()), (0, 3, 7));
        let told: Vec<_> = ended.iter().map(|ended| (ended.stage, ended.go_on, ended.count)).collect();
        let rows = [(Stage::Header, true, 2), (Stage::Payload, true, 2), (Stage::Completion, false, 2)];
        assert_eq!(told, [&rows[..], &[(Stage::Payload, false, 1)]].concat());
    }

    /// Tasks that end on their tray leave their frames there, also when others of it were taken or their frames sent; the tray is used again.
    #[test]
    fn trays_come_back_with_what_is_left_on_them() {
        let bell = || Bell::new().expect("an event");
        let (mut nic, _far) = pair(1024).expect("frames");
        let (mut dispatcher, mut own, mut queue) = errands(2048, bell(), bell());
        let blank = dispatcher.credit();
        for _ in 0..3 * super::TRAYS {
            let mut frames = Vec::new();
            for mpq in 1..=6 {
                let frame = nic.allocate().expect("there are many");
                frames.push(frame.as_ptr());
                let (errand, frame) = Errand::of(task(frame, mpq, Stage::Payload, true), 7, None);
                dispatcher.stage(errand, frame);
            }
            dispatcher.hand_over(|| None);
            assert_eq!((own.take(BATCH), own.here_of_row(), dispatcher.out()), (6, 6, 6));
            let like = own.next().expect("it is here");
            own.pass();
            let (first, kept) = own.pop(false).expect("it is here");
            let errand = |own| Errand { own, ..like };
            own.keep(errand(first), kept, Outcome::NotRun);
            own.pass();
            let sent = own.pass_without_frame().expect("it is here");
            queue.recycle(sent);
            let (last, frame) = own.look(false).expect("it is here");
            assert_eq!((last.mpq, frame.as_ptr()), (MpqId(5), frames[4]));
            own.pass();
            let (last, kept) = own.pop(false).expect("it is here");
            own.tell(&mut queue);
            assert!(!dispatcher.has_news(), "the tray is not over");
            own.keep(errand(last), kept, Outcome::NotRun);
            own.count_begun(6);
            own.go_on();
            own.tell(&mut queue);
            queue.flush().expect("a lane does not fail");
            let (mut kept, mut ended, mut of, mut spent) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
            let count = dispatcher.take_back(|frame, _| spent.push(frame), &mut kept, &mut ended, &mut of, |_| {});
            assert_eq!((count, of), (6, [1, 3, 4, 5].map(MpqId).to_vec()));
            let (kept, after): (Vec<_>, Vec<_>) = kept.into_iter().map(|(kept, frame)| (frame, kept.after)).unzip();
            let (spent_at, kept_at) = ([3, 0, 2, 4], [1, 5]);
            assert_eq!(spent.iter().map(|frame| frame.as_ptr()).collect::<Vec<_>>(), spent_at.map(|at| frames[at]));
            assert_eq!(kept.iter().map(|frame| frame.as_ptr()).collect::<Vec<_>>(), kept_at.map(|at| frames[at]));
            assert_eq!(after[1].wrapping_sub(after[0]), 1, "the second row lies between them");
            assert_eq!((dispatcher.out(), dispatcher.credit()), (0, blank), "all is back");
            nic.recycle_all(&mut spent);
            kept.into_iter().for_each(|frame| nic.recycle(frame));
        }
    }

    /// A tray may be seen to be back before what is told of its tasks: until then their frames are out, though all of these were taken.
    #[test]
    fn frames_on_a_tray_are_not_back_before_it_is_known_that_their_tasks_have_ended() {
        let bell = || Bell::new().expect("an event");
        let (mut nic, _far) = pair(1024).expect("frames");
        let (mut dispatcher, mut own, mut queue) = errands(2048, bell(), bell());
        let frame = nic.allocate().expect("there are many");
        let (mut errand, frame) = Errand::of(task(frame, 1, Stage::Header, false), 7, None);
        errand.may_go_on(GoesOn::ToPayload);
        dispatcher.stage(errand, frame);
        dispatcher.hand_over(|| None);
        assert_eq!(own.take(BATCH), 1);
        own.follow(false).expect("it is here");
        own.count_begun(1);
        own.tell_ended(&errand.row, 1, true);
        own.line_up(errand.row.next().expect("it goes on"), errand.arrived);
        own.go_on();
        let payload = own.next().expect("it follows").row;
        assert!(own.pass_follower(true).is_none());
        own.count_begun(1);
        own.tell_ended(&payload, 1, false);
        own.go_on();
        let mut back = |dispatcher: &mut super::Dispatcher| {
            let mut of = Vec::new();
            let each = |frame, _| nic.recycle(frame);
            let count = dispatcher.take_back(each, &mut Vec::new(), &mut Vec::new(), &mut of, |_| {});
            (count, of.len(), dispatcher.out())
        };
        own.returns.give_back();
        assert_eq!(back(&mut dispatcher), (0, 0, 1));
        own.tell(&mut queue);
        assert_eq!(back(&mut dispatcher), (1, 2, 0));
    }

    /// A message that was given up is, until the engine hands over rows of which it says that it has seen that; a waiting task of it is kept.
    #[test]
    fn no_task_of_a_message_that_was_given_up_is_begun() {
        let bell = || Bell::new().expect("an event");
        let (mut nic, _far) = pair(1024).expect("frames");
        let (_dispatcher, mut own, _queue) = errands(2048, bell(), bell());
        let mut errand = |mpq| {
            let frame = nic.allocate().expect("there are many");
            Errand::of(task(frame, mpq, Stage::Payload, true), 7, None)
        };
        let ((first, frame), (second, waits), (other, waits_too)) = (errand(1), errand(1), errand(2));
        own.wait(second, waits);
        own.wait(other, waits_too);
        own.give_up(&first);
        own.keep(first, frame, Outcome::Ended(None));
        assert!(own.is_given_up(&second.own) && !own.is_given_up(&other.own));
        let outcomes: Vec<_> = own.kept.staged.iter().map(|kept| (kept.errand.own.mpq.0, kept.outcome)).collect();
        assert_eq!(outcomes, [(1, Outcome::Ended(None)), (1, Outcome::GivenUp)]);
        assert!(own.waiting(0).is_some_and(|waits| waits.own == other.own) && own.waiting(1).is_none());
        let mut row = first.row;
        for (seen, given_up) in [(0, true), (1, false)] {
            row.seen = seen;
            own.forget_seen(&row);
            assert_eq!(own.is_given_up(&second.own), given_up);
        }
    }
}
