//! The admin room: answers control messages (`forebay_admin`), runs one drain at a time, and lets the bridge
//! end when nobody needs it.

mod drains;
mod life;
mod threads;

use crate::ServerHandle;
use crate::answer::Answered;
use crate::limits::{ANSWER_PATIENCE, FOLLOWERS, LEFT_PER_LOOK};
use crate::log::Cause;
use crate::status;
use drains::Drains;
use forebay_admin::drain::{DrainBegun, DrainRequest, Inventory};
use forebay_admin::{
    AnswerError, AnswerWriter, Arrived, NoRequest, Refusal, RefusalKind, Request,
    VERSION_WITHOUT_NUMBER,
};
use forebay_core::path::TreePath;
use forebay_core::reserve::Purpose;
use forebay_core::table::TableError;
use forebay_mover::{Counters, Halt, Pass, Points};
use forebay_wire::ReplyKind;
use life::Life;
use parking_lot::{Condvar, Mutex};
use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Once};
use std::time::{Duration, Instant};
use threads::Threads;

/// Longest pause between two items for a caller that follows a drain.
const FOLLOW_EVERY: Duration = Duration::from_millis(100);

/// Answers control messages.
pub(crate) struct Admin {
    drains: Mutex<Drains>,
    /// Copies are being refreshed: a drain begins after that.
    refreshing: Mutex<()>,
    /// A drain, or the bridge, has come to its end.
    ended: Condvar,
    life: Life,
    /// The watch over `life` has begun.
    watch: Once,
    points: Arc<Points>,
    threads: Arc<Threads>,
    /// Callers that follow drains.
    followers: AtomicUsize,
}

/// A caller that follows a drain, as long as it does.
struct Follower<'a> {
    all: &'a AtomicUsize,
    /// How many there were before.
    before: usize,
}

impl<'a> Follower<'a> {
    fn new(all: &'a AtomicUsize) -> Self {
        let before = all.fetch_add(1, Ordering::Relaxed);
        Follower { all, before }
    }

    fn is_one_too_many(&self) -> bool {
        self.before >= FOLLOWERS
    }
}

impl Drop for Follower<'_> {
    fn drop(&mut self) {
        self.all.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Why an answer is not complete.
enum Trouble {
    Refused(Refusal),
    Sending(AnswerError),
}

impl From<AnswerError> for Trouble {
    fn from(e: AnswerError) -> Self {
        Trouble::Sending(e)
    }
}

impl From<TableError> for Trouble {
    fn from(e: TableError) -> Self {
        refused(RefusalKind::Tables, e.to_string())
    }
}

impl From<Halt> for Trouble {
    fn from(halt: Halt) -> Self {
        refused(RefusalKind::Tables, crate::Error::from(halt).to_string())
    }
}

fn refused(kind: RefusalKind, message: String) -> Trouble {
    Trouble::Refused(Refusal { kind, message })
}

type Outcome = Result<(), Trouble>;
type Answer<'s> = AnswerWriter<&'s UnixStream>;

impl Admin {
    /// For a bridge that stays until it is told to end, or only as long as runs use it: this one from the beginning.
    pub fn new(stays: bool, run: Option<u32>) -> Self {
        let life = Life::new(stays);
        if let Some(pid) = run {
            life.begin(pid);
        }
        Admin {
            drains: Mutex::new(Drains::new()),
            refreshing: Mutex::new(()),
            ended: Condvar::new(),
            life,
            watch: Once::new(),
            points: Arc::new(Points::from_env()),
            threads: Arc::default(),
            followers: AtomicUsize::new(0),
        }
    }

    /// The bridge ends: no answer begins any more, and those that follow something come to their ends.
    pub fn close(&self) {
        self.threads.close();
        let _drains = self.drains.lock();
        self.ended.notify_all();
    }

    /// Asks a drain to come to its end. None begins in a bridge that stops.
    pub fn stop_drain(&self) {
        self.counters().stop();
    }

    /// Waits for a drain and for the answers that are being written; false if some did not end in time.
    pub fn await_end(&self, by: Instant) -> bool {
        self.threads.await_end(by)
    }

    /// Counters of the running or the last drain. No lock is held while an answer is sent, because the caller may be slow.
    fn counters(&self) -> Arc<Counters> {
        self.drains.lock().last().clone()
    }

    /// The same of the drain of this number; `None`: of the last one.
    fn counters_of(&self, number: Option<u64>) -> Result<Arc<Counters>, Trouble> {
        let Some(number) = number else {
            return Ok(self.counters());
        };
        let drains = self.drains.lock();
        drains.find(number).cloned().ok_or_else(|| {
            let why = format!("it does not know any more how drain {number} ended");
            refused(RefusalKind::Forgotten, why)
        })
    }

    /// Starts a drain, unless one is at work already. Gives that which is at work then, and whether it was at work before.
    fn start_drain(
        &self,
        server: &Arc<ServerHandle>,
        request: DrainRequest,
    ) -> Result<(Arc<Counters>, bool), Trouble> {
        if let Some(take) = request
            .take
            .iter()
            .find(|take| TreePath::new(&take.path[..]).is_none())
        {
            let path = take.path.escape_ascii();
            return Err(refused(
                RefusalKind::Malformed,
                format!("{path} is no path in a buffer"),
            ));
        }
        let mut drains = self.drains.lock();
        let last = drains.last().clone();
        if server.stopping() {
            let why = "the bridge is about to end".to_owned();
            return Err(refused(RefusalKind::Busy, why));
        }
        if last.is_running() {
            if !request.take.is_empty() {
                let why =
                    "another drain is at work, and takes no more choices: ask again at its end";
                return Err(refused(RefusalKind::Busy, why.to_owned()));
            }
            return Ok((last, true));
        }
        let counters = Arc::new(Counters::new(last.number() + 1));
        let (theirs, ground, points) = (counters.clone(), server.clone(), self.points.clone());
        let started = self.threads.spawn("drain", move || {
            drop(ground.admin.refreshing.lock());
            ground.namespace.serve_for(Purpose::BringAway);
            let pass = || Pass::new(ground.ground(), &request, &theirs, &points).run();
            let failure = match ground.hold.confirm() {
                Ok(()) => pass().err().map(|halt| halt.to_string()),
                Err(e) => Some(e.to_string()),
            };
            if let Some(remark) = ground.hold.remark_on_place() {
                theirs.remark(remark);
            }
            if let Some(text) = &failure {
                ground.log.line(format_args!("a drain failed: {text}"));
            }
            if !ground.stopping() {
                ground.namespace.serve_for(Purpose::Serve);
            }
            ground.namespace.give_memory_back();
            theirs.end(failure);
            let _drains = ground.admin.drains.lock();
            ground.admin.ended.notify_all();
        });
        match started {
            Ok(()) => {
                drains.push(counters.clone());
                Ok((counters, false))
            }
            Err(e) => Err(refused(
                RefusalKind::System,
                format!("no thread for the drain: {e}"),
            )),
        }
    }

    /// Before a run that is the only one: what others have changed on the PFS since the last one shows. A PFS that hangs keeps no
    /// other answer waiting.
    fn refresh(&self, server: &ServerHandle, pid: u32) -> Outcome {
        let _held = self.refreshing.lock();
        // A drain that begins from here on waits.
        let is_draining = self.counters().is_running();
        if self.life.is_alone(pid, &server.clients) && !is_draining && !server.stopping() {
            forebay_mover::refresh(server.ground())?;
        }
        Ok(())
    }

    /// Sends the counters of a drain until it has ended, or the bridge does; once if too many follow drains already.
    fn follow_drain(&self, followed: &Counters, answer: &mut Answer<'_>) -> Outcome {
        let follower = Follower::new(&self.followers);
        loop {
            // Asked before the item is sent, so that the last item shows the end.
            let goes_on =
                followed.is_running() && !self.threads.is_closing() && !follower.is_one_too_many();
            answer.item(&followed.status())?;
            answer.flush()?;
            if !goes_on {
                return Ok(());
            }
            let mut drains = self.drains.lock();
            if followed.is_running() && !self.threads.is_closing() {
                self.ended.wait_for(&mut drains, FOLLOW_EVERY);
            }
        }
    }

    /// Sends what a drain has left, a part at a time: the list may be long, and the
    /// caller slow.
    fn send_left(counters: &Counters, answer: &mut Answer<'_>) -> Outcome {
        let mut sent = 0;
        loop {
            let part = counters.left_from(sent, LEFT_PER_LOOK);
            if part.is_empty() {
                return Ok(());
            }
            for left in &part {
                answer.item(left)?;
            }
            sent += part.len();
        }
    }

    /// Carries a request out and sends the items of its answer. True in `ends`: the bridge is to end after it.
    fn carry_out(
        &self,
        server: &Arc<ServerHandle>,
        request: Request,
        answer: &mut Answer<'_>,
        ends: &mut bool,
    ) -> Outcome {
        match request {
            Request::Status => answer.item(&status::take(server))?,
            Request::Stop => {
                *ends = true;
                answer.item(&())?;
            }
            Request::Drain(drain) => {
                let (counters, joined) = self.start_drain(server, drain)?;
                let status = counters.status();
                answer.item(&DrainBegun { status, joined })?;
            }
            Request::DrainStatus => answer.item(&self.counters().status())?,
            Request::FollowDrain { number } => {
                self.follow_drain(&*self.counters_of(number)?, answer)?;
            }
            Request::DrainStop { number } => {
                let drain = self.counters_of(number)?;
                drain.stop();
                answer.item(&drain.status())?;
            }
            Request::Left { number } => Self::send_left(&*self.counters_of(number)?, answer)?,
            Request::Inventory => answer.item(&take_inventory(server)?)?,
            Request::Attach { pid, verb } => {
                self.refresh(server, pid)?;
                match self.life.attach(pid, verb, &server.clients) {
                    // A bridge that is ending says so in it: the caller starts another one.
                    Ok(life) => answer.item(&life)?,
                    Err(e) => return Err(refused(RefusalKind::Process, life::no_process(pid, e))),
                }
            }
            Request::Detach { pid, clean } => {
                // What can't be read may be anything.
                let is_clean = || !clean || take_inventory(server).is_ok_and(|i| !i.is_dirty());
                let (life, is_over) = self.life.detach(pid, &server.clients, is_clean);
                *ends = is_over;
                answer.item(&life)?;
            }
            Request::Lifetime => answer.item(&self.life.status(&server.clients))?,
            Request::SetStay { stay } => {
                answer.item(&self.life.set_stays(stay, &server.clients))?;
            }
        }
        Ok(())
    }
}

/// Answers a control message. The caller gets the stream of the answer, which is written meanwhile in a thread
/// of its own: so this waits for nothing, and a PFS that hangs keeps nobody from asking.
pub(crate) fn answer(server: &Arc<ServerHandle>, message: &[u8]) -> Answered {
    let arrived = match Request::decode(message) {
        Err(e @ NoRequest::Version(VERSION_WITHOUT_NUMBER)) => {
            // It reads its answer, an object of JSON, from the reply itself.
            let error = serde_json::json!({ "error": e.refusal().message });
            return Answered::bytes(error.to_string().into_bytes());
        }
        arrived => arrived,
    };
    watch_over(server);
    let theirs = server.clone();
    let stream = server.admin.threads.answer(move |stream| {
        write_answer(&theirs, arrived.and_then(|it| whole(it, stream)), stream)
    });
    match stream {
        Ok(stream) => Answered {
            kind: ReplyKind::Grant,
            fd: Some(stream),
            ..Answered::status(0)
        },
        Err(e) => {
            server.log.limited(
                Cause::Limit,
                format_args!("a control message is not answered: {e}"),
            );
            Answered::status(e.raw_os_error())
        }
    }
}

/// The request that has arrived, or that follows over the stream of its answer.
fn whole(arrived: Arrived, stream: &UnixStream) -> Result<Request, NoRequest> {
    let bytes = match arrived {
        Arrived::Whole(request) => return Ok(request),
        Arrived::Announced(bytes) => bytes,
    };
    let mut message = Vec::new();
    let mut rest = stream.take(bytes as u64);
    let read = stream
        .set_read_timeout(Some(ANSWER_PATIENCE))
        .and_then(|()| rest.read_to_end(&mut message));
    match (read, Request::decode(&message)) {
        (Ok(_), Ok(Arrived::Whole(request))) => Ok(request),
        (Ok(_), Err(e)) => Err(e),
        (Ok(_), Ok(Arrived::Announced(_))) => {
            Err(NoRequest::Malformed("it announces another one".to_owned()))
        }
        (Err(e), _) => Err(NoRequest::Malformed(e.to_string())),
    }
}

fn write_answer(server: &Arc<ServerHandle>, request: Result<Request, NoRequest>, out: &UnixStream) {
    let name = request.as_ref().map_or("unknown", Request::name);
    let mut ends = false;
    let sent = AnswerWriter::begin(out).and_then(|mut answer| {
        let outcome = match request {
            Ok(request) => server
                .admin
                .carry_out(server, request, &mut answer, &mut ends),
            Err(e) => Err(Trouble::Refused(e.refusal())),
        };
        // Stop even if the answer can't be sent. A caller that reads it may rely on the stop.
        if ends {
            server.ask_to_stop();
        }
        match outcome {
            Ok(()) => answer.end(),
            Err(Trouble::Refused(refusal)) => answer.refuse(&refusal),
            Err(Trouble::Sending(AnswerError::Unfit(message))) => answer.refuse(&Refusal {
                kind: RefusalKind::Unfit,
                message,
            }),
            Err(Trouble::Sending(lost)) => Err(lost),
        }
    });
    if let Err(AnswerError::Lost(cause)) = &sent
        && cause.kind() == io::ErrorKind::WouldBlock
    {
        server.log.limited(
            Cause::Deaf,
            format_args!("nobody reads the answer to `{name}`: cut off"),
        );
    }
}

/// Ends the bridge if all runs that used it were killed. Its data stays for the next bridge.
fn watch_over(server: &Arc<ServerHandle>) {
    server.admin.watch.call_once(|| {
        let theirs = server.clone();
        let watched = server
            .admin
            .threads
            .spawn("lifetime", move || life::watch(&theirs));
        if let Err(e) = watched {
            server.log.line(format_args!(
                "lives until it is told to end: no thread ({e})"
            ));
        }
    });
}

/// Takes stock of a bridge.
///
/// # Errors
/// The tables can't be read.
pub fn take_inventory(server: &ServerHandle) -> Result<Inventory, Halt> {
    forebay_mover::take_inventory(server.ground())
}
