//! Drivers of two loggers, joined by a channel in memory.

#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use counterfoil::{AppendError, Keep, Log, Options, Rank};
use counterfoil_mpi_logger::{
    ControlChannel, ControlKind, ControlMessage, Driver, DriverError, Logger, LoggerOptions, Members, ReceivedControl,
    SpacePoll, SpaceRefusal, Stream, WORLD,
};
use counterfoil_profile::RecordTag;

const PAYLOAD: usize = 4 << 10;

type Inbox = Rc<RefCell<VecDeque<ReceivedControl>>>;

#[derive(Debug, PartialEq)]
struct Broken;

/// A rank's end of the channel.
#[derive(Debug)]
struct Channel {
    rank: u32,
    inboxes: [Inbox; 2],
    is_broken: bool,
    eager: u32,
}

impl ControlChannel for Channel {
    type Error = Broken;

    fn send(&mut self, message: &ControlMessage) -> Result<(), Broken> {
        if self.is_broken {
            return Err(Broken);
        }
        let received = ReceivedControl { kind: message.kind, from: self.rank, bytes: message.bytes.clone() };
        self.inboxes[message.to as usize].borrow_mut().push_back(received);
        Ok(())
    }

    fn poll(&mut self) -> Result<Option<ReceivedControl>, Broken> {
        if self.is_broken { Err(Broken) } else { Ok(self.inboxes[self.rank as usize].borrow_mut().pop_front()) }
    }

    fn drain(&mut self) -> Result<Vec<ReceivedControl>, Broken> {
        Ok(self.inboxes[self.rank as usize].borrow_mut().drain(..).collect())
    }

    fn be_eager(&mut self) {
        self.eager += 1;
    }
}

struct Node {
    logger: Logger,
    channel: Channel,
}

impl Node {
    fn driver(&mut self) -> Driver<'_, Channel> {
        Driver { logger: &mut self.logger, channel: &mut self.channel }
    }

    /// Logs a message to the other rank.
    fn log(&mut self) -> Result<(), Box<AppendError>> {
        let stream = Stream::new(1 - self.channel.rank, WORLD, 5);
        let (log, sent) = self.logger.log_and_sent();
        let mut claim = log.unwrap().try_claim(Rank(stream.peer), RecordTag::LEN, PAYLOAD)?;
        let number = sent.next(stream);
        claim.prefix_mut().copy_from_slice(&stream.record_tag(number).encode());
        claim.payload_mut().fill(7);
        claim.commit();
        Ok(())
    }

    /// Counts messages received from the other rank.
    fn receive(&mut self, messages: u32) {
        let id = self.logger.received_id(Stream::new(1 - self.channel.rank, WORLD, 5));
        (0..messages).for_each(|_| _ = self.logger.handle_received(id, PAYLOAD));
    }
}

fn job() -> [Node; 2] {
    let inboxes = [Inbox::default(), Inbox::default()];
    [0, 1].map(|rank| {
        let mut options = Options::new(Rank(rank), 2);
        options.keep = Keep::Acked;
        options.memory_bytes_max = 1 << 20;
        let mut logger = Logger::new(Log::create(options).unwrap(), &LoggerOptions::default());
        logger.comms.add(WORLD, Members { world: [0, 1].into(), rank: rank as i32, is_inter: false }).unwrap();
        Node { logger, channel: Channel { rank, inboxes: inboxes.clone(), is_broken: false, eager: 0 } }
    })
}

/// Fills a node's log; returns the number of records, and the refusal.
fn fill(node: &mut Node) -> (u32, Box<AppendError>) {
    let mut records = 0;
    loop {
        match node.log() {
            Ok(()) => records += 1,
            Err(refused) => return (records, refused),
        }
    }
}

#[test]
fn a_full_log_finds_space_once_its_receiver_has_answered_the_query() {
    let [mut sender, mut receiver] = job();
    let (records, refused) = fill(&mut sender);
    sender.logger.begin_wait(std::time::Instant::now());
    assert_eq!(sender.driver().begin_attempt(&refused).unwrap(), SpaceRefusal::Peers);
    let attempt = sender.driver().end_attempt(1, PAYLOAD, |_, _| ()).unwrap();
    assert!(matches!(attempt.poll, SpacePoll::Pending { is_long: false, .. }) && attempt.discarded == 0);

    let mut kinds = Vec::new();
    receiver.receive(records);
    receiver.driver().receive(|kind| kinds.push(kind)).unwrap();
    assert_eq!((kinds, receiver.channel.eager), (vec![ControlKind::Query], 1));
    receiver.logger.answer_queries().unwrap();
    receiver.driver().flush().unwrap();

    sender.driver().receive(|_| ()).unwrap();
    let mut released = Vec::new();
    let attempt = sender.driver().end_attempt(1, PAYLOAD, |peer, _| released.push(peer)).unwrap();
    assert!(matches!(attempt.poll, SpacePoll::Ready), "{attempt:?}");
    assert_eq!((released, sender.logger.unacknowledged()), (vec![1], 0));
}

#[test]
fn an_acknowledgement_that_cannot_be_applied_leaves_the_messages_after_it_to_the_next_call() {
    let [mut sender, mut receiver] = job();
    sender.log().unwrap();
    receiver.receive(1);
    // Stream of a message never sent.
    let unseen = Stream::new(0, WORLD, 9);
    let mut stranger = job();
    let id = stranger[1].logger.received_id(unseen);
    stranger[1].logger.handle_received(id, 1);
    for node in [&mut stranger[1], &mut receiver] {
        node.logger.acknowledge(0).unwrap();
        let message = node.logger.poll_control().unwrap();
        let received = ReceivedControl { kind: message.kind, from: 1, bytes: message.bytes };
        sender.channel.inboxes[0].borrow_mut().push_back(received);
    }
    let mut failed = 0;
    while let Err(error) = sender.driver().receive(|_| ()).and_then(|()| sender.driver().query_early(true)) {
        assert!(matches!(error, DriverError::Release(_)), "{error:?}");
        failed += 1;
        if failed > 3 {
            break;
        }
    }
    assert!(failed > 0 && sender.channel.inboxes[0].borrow().is_empty());
}

#[test]
fn a_broken_channel_is_an_error_of_its_own() {
    let [mut sender, _] = job();
    sender.channel.is_broken = true;
    assert!(matches!(sender.driver().receive(|_| ()), Err(DriverError::Channel(Broken))));
    sender.logger.leave();
    assert_eq!(sender.driver().flush(), Err(Broken));
}
