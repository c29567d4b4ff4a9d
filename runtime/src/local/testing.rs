//! Job with ranks as threads in a test: the real endpoint, log, protocol and sockets, with a minimal launcher.
//!
//! A rank "dies" when its endpoint is dropped, which closes its sockets and releases its files, like SIGKILL.

use std::collections::HashMap;
use std::os::unix::net::UnixStream;
use std::sync::Mutex;
use std::sync::mpsc;
use std::thread;

use bytes::Bytes;
use counterfoil::Epoch;
use counterfoil_protocols::api::{CollectiveClass, Rule};

use super::control::{Control, ToRank};
use super::job::JobDirectory;
use super::launcher_connection::LauncherConnection;
use super::{LocalTransport, RankEndpoint};
use crate::communicator::{CollectiveRun, CollectiveSubstrate, InternalTag, Request, Status};
use crate::endpoint::{Endpoint, EndpointOptions, LogFiles};
use crate::oracle::{Timeline, read_timelines};
use crate::settings::RankSettings;
use crate::tally::Tally;
use crate::{Communicator, Error};

/// Communicator for a rank that is a thread.
pub(crate) type ThreadEndpoint = RankEndpoint<LocalTransport>;

/// End of a rank's program.
pub(crate) enum End {
    /// Success, with the result.
    Result(Vec<u8>),
    /// Death: the replacement runs the program again.
    Killed,
}

/// Message from a rank's thread to the launcher.
enum RankMessage {
    Done,
    End(u32, Box<Result<(Vec<u8>, Tally), Error>>),
}

/// Launcher's side of the control connections; `None` once a rank has failed and all have to end.
type Launchers = Mutex<Option<HashMap<u32, Control>>>;

/// Closes the control connections if a rank panics, so that the others end.
struct EndAllOnPanic<'a>(&'a Launchers);

impl Drop for EndAllOnPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            *self.0.lock().unwrap() = None;
        }
    }
}

/// Job in its own directory.
pub(crate) struct ThreadJob {
    pub(crate) settings: RankSettings,
    rule: Rule,
    pub(crate) job: JobDirectory,
    _root: tempfile::TempDir,
    /// Each live rank's incarnation.
    alive: Mutex<Vec<Option<u32>>>,
    launchers: Launchers,
}

impl ThreadJob {
    pub(crate) fn new(settings: RankSettings) -> ThreadJob {
        ThreadJob::under(settings.rule, settings)
    }

    /// Makes a job under a rule in place of the one in its settings.
    pub(crate) fn under(rule: Rule, settings: RankSettings) -> ThreadJob {
        // Socket paths must be short, and the default directory for temporary files may be long.
        let root = tempfile::Builder::new().prefix("cft").tempdir_in("/tmp").unwrap();
        let job = JobDirectory::create(root.path(), root.path()).unwrap();
        let alive = Mutex::new(vec![None; settings.ranks as usize]);
        ThreadJob {
            settings: RankSettings { trace: true, ..settings },
            rule,
            job,
            _root: root,
            alive,
            launchers: Mutex::new(Some(HashMap::new())),
        }
    }

    /// Starts a rank's incarnation, connected to the live ranks.
    fn start(&self, rank: u32, incarnation: u32) -> Result<ThreadEndpoint, Error> {
        let (paths, ranks) = (self.job.paths(), self.settings.ranks);
        let mut alive = self.alive.lock().unwrap();
        let listener = LocalTransport::listen(paths, rank, incarnation).unwrap();
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (control, launcher) = (Control::new(ours).unwrap(), Control::new(theirs).unwrap());
        let transport = LocalTransport::new(
            (rank, incarnation),
            ranks,
            paths.clone(),
            LauncherConnection::new(control),
            listener,
            64 << 20,
        )?;
        let protocol = self.rule.protocol(rank, self.settings.ranks, incarnation)?;
        let options = EndpointOptions {
            rank,
            incarnation,
            settings: self.settings.clone(),
            files: LogFiles::TakenOver,
            log_directory: paths.logs(),
            trace_directory: paths.traces(),
            store_directory: self.job.checkpoints().to_owned(),
            saves: Default::default(),
        };
        let mut endpoint = Endpoint::start(options, protocol, transport)?;
        for (peer, its_incarnation) in (0u32..).zip(&*alive) {
            if let Some(its_incarnation) = its_incarnation {
                let hello = endpoint.hello(peer)?;
                endpoint.transport_mut().connect(peer, *its_incarnation, &hello)?;
            }
        }
        alive[rank as usize] = Some(incarnation);
        if let Some(launchers) = &mut *self.launchers.lock().unwrap() {
            launchers.insert(rank, launcher);
        }
        Ok(endpoint)
    }

    /// Runs `program(endpoint, incarnation)` on every rank until each has a result, and replaces dead ones.
    ///
    /// The first error ends all ranks.
    pub(crate) fn run<F>(&self, program: F) -> Result<(Vec<Vec<u8>>, Tally), Error>
    where
        F: Fn(&mut ThreadEndpoint, u32) -> Result<End, Error> + Sync,
    {
        let ranks = self.settings.ranks;
        let (sender, messages) = mpsc::channel();
        thread::scope(|scope| {
            for rank in 0..ranks {
                let (sender, program) = (sender.clone(), &program);
                scope.spawn(move || {
                    let _all_end = EndAllOnPanic(&self.launchers);
                    let result = self.run_rank(rank, program, &sender);
                    let _ = sender.send(RankMessage::End(rank, Box::new(result)));
                });
            }
            drop(sender);
            let mut results = vec![Vec::new(); ranks as usize];
            let (mut tally, mut done, mut ended, mut error) = (Tally::default(), 0, 0, None);
            while let Ok(message) = messages.recv() {
                match message {
                    RankMessage::Done => done += 1,
                    RankMessage::End(rank, result) => {
                        ended += 1;
                        match *result {
                            Ok((result, counted)) => {
                                results[rank as usize] = result;
                                tally += counted;
                            }
                            Err(why) => {
                                error.get_or_insert(why);
                                *self.launchers.lock().unwrap() = None;
                            }
                        }
                    }
                }
                if done == ranks && ended == 0 {
                    let mut launchers = self.launchers.lock().unwrap();
                    launchers.iter_mut().flatten().for_each(|(_, launcher)| launcher.send(&ToRank::Finish).unwrap());
                }
            }
            error.map_or(Ok((results, tally)), Err)
        })
    }

    fn run_rank<F>(&self, rank: u32, program: &F, sender: &mpsc::Sender<RankMessage>) -> Result<(Vec<u8>, Tally), Error>
    where
        F: Fn(&mut ThreadEndpoint, u32) -> Result<End, Error>,
    {
        let mut past = Tally::default();
        for incarnation in 0.. {
            let mut endpoint = self.start(rank, incarnation)?;
            match program(&mut endpoint, incarnation)? {
                End::Killed => {
                    past += endpoint.tally();
                    self.alive.lock().unwrap()[rank as usize] = None;
                }
                End::Result(result) => {
                    let _ = sender.send(RankMessage::Done);
                    endpoint.finish(result.clone())?;
                    past += endpoint.tally();
                    return Ok((result, past));
                }
            }
        }
        unreachable!("incarnations do not run out")
    }

    /// Returns the ranks' timelines, from their traces.
    pub(crate) fn timelines(&self) -> Vec<Timeline> {
        read_timelines(&self.job.paths().traces(), self.settings.ranks, self.settings.repeats()).unwrap()
    }
}

/// Communicator that dies, as by SIGKILL, once `calls_left` calls were made.
pub(crate) struct Killable<'a> {
    endpoint: &'a mut ThreadEndpoint,
    calls_left: Option<u64>,
    /// Number of calls made.
    pub(crate) calls: u64,
}

impl<'a> Killable<'a> {
    /// Makes a communicator that dies at call number `at`, from 0; never if `None`.
    pub(crate) fn new(endpoint: &'a mut ThreadEndpoint, at: Option<u64>) -> Killable<'a> {
        Killable { endpoint, calls_left: at, calls: 0 }
    }

    /// Converts the program's result: a death if the communicator died.
    pub(crate) fn end(&self, result: Result<Vec<u8>, Error>) -> Result<End, Error> {
        match result {
            Err(_) if self.calls_left == Some(0) => Ok(End::Killed),
            other => other.map(End::Result),
        }
    }

    /// Counts a call on the endpoint.
    pub(crate) fn endpoint(&mut self) -> Result<&mut ThreadEndpoint, Error> {
        self.count_call()
    }

    fn count_call(&mut self) -> Result<&mut ThreadEndpoint, Error> {
        match &mut self.calls_left {
            // The error is arbitrary: the program returns it, and `end` replaces it.
            Some(0) => return Err(Error::RequestsMax { max: 0 }),
            Some(left) => *left -= 1,
            None => {}
        }
        self.calls += 1;
        Ok(self.endpoint)
    }
}

impl Communicator for Killable<'_> {
    fn rank(&self) -> u32 {
        self.endpoint.rank()
    }

    fn size(&self) -> u32 {
        self.endpoint.size()
    }

    fn isend(&mut self, to: u32, tag: i32, payload: &[u8]) -> Result<Request, Error> {
        self.count_call()?.isend(to, tag, payload)
    }

    fn irecv(&mut self, source: Option<u32>, tag: Option<i32>) -> Result<Request, Error> {
        self.count_call()?.irecv(source, tag)
    }

    fn wait(&mut self, request: Request) -> Result<(Status, Bytes), Error> {
        self.count_call()?.wait(request)
    }

    fn test(&mut self, request: &Request) -> Result<bool, Error> {
        self.count_call()?.test(request)
    }

    fn probe(&mut self, source: Option<u32>, tag: Option<i32>) -> Result<Status, Error> {
        self.count_call()?.probe(source, tag)
    }

    fn iprobe(&mut self, source: Option<u32>, tag: Option<i32>) -> Result<Option<Status>, Error> {
        self.count_call()?.iprobe(source, tag)
    }

    fn checkpoint(&mut self, state: &[u8]) -> Result<Epoch, Error> {
        self.count_call()?.checkpoint(state)
    }

    fn restore(&mut self) -> Result<Option<Bytes>, Error> {
        self.endpoint.restore()
    }

    fn iteration(&mut self, n: u64) -> Result<(), Error> {
        self.count_call()?.iteration(n)
    }

    fn substrate(&mut self) -> &mut dyn CollectiveSubstrate {
        self
    }
}

impl CollectiveSubstrate for Killable<'_> {
    fn isend_internal(&mut self, to: u32, tag: InternalTag, payload: &[u8]) -> Result<Request, Error> {
        self.count_call()?.isend_internal(to, tag, payload)
    }

    fn irecv_internal(&mut self, source: u32, tag: InternalTag) -> Result<Request, Error> {
        self.count_call()?.irecv_internal(source, tag)
    }

    fn begin_collective(&mut self) -> InternalTag {
        self.endpoint.begin_collective()
    }

    fn plan_collective(
        &mut self,
        tag: InternalTag,
        class: CollectiveClass,
        uniform: bool,
    ) -> Result<CollectiveRun, Error> {
        self.endpoint.plan_collective(tag, class, uniform)
    }

    fn complete_collective(&mut self, tag: InternalTag, result: &dyn Fn() -> Vec<u8>) -> Result<(), Error> {
        self.endpoint.complete_collective(tag, result)
    }
}
