//! Ranks, connections, launcher and saved states of a restarted job.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use counterfoil_ack_piggyback::WireHeader;
use counterfoil_log_core::{Envelope, Incarnation, Rank};
use counterfoil_protocols::api::{
    Coordinator, Effect, Hello, Incoming, Party, Protocol, Restart, Rule, RuleSettings, command_header,
};
use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use super::program::{Action, Content, Program, State, results};
use super::{Config, Coverage};

/// Limit of events before a run is stopped, for each iteration and kill.
const EVENTS_MAX: usize = 4000;

/// Frame on a connection.
#[derive(Clone, Debug)]
enum Frame {
    Hello(Hello),
    Message {
        header: WireHeader,
        generation: u32,
        number: u64,
        content: Content,
    },
    Control {
        header: WireHeader,
        body: Vec<u8>,
    },
    /// The other end is gone.
    Closed,
}

/// A rank's process.
#[derive(Debug)]
struct Process {
    machine: Box<dyn Protocol>,
    program: Program,
    /// By peer: its hello was handled.
    connected: Vec<bool>,
    /// By peer: delivered messages.
    inbox: Vec<VecDeque<Content>>,
    /// Messages sent and received so far, by peer.
    sent: Vec<u64>,
    received: Vec<u64>,
    exit: Option<Exit>,
    /// `true` while its state in memory is being changed.
    is_changing: bool,
}

/// Process exit under way.
#[derive(Clone, Copy, Debug)]
struct Exit {
    saves: bool,
    /// Parts of the state still to be written.
    left: u32,
}

/// Notice pending at the launcher.
#[derive(Clone, Copy, Debug)]
enum News {
    Died(u32),
    Exited { rank: u32, saved: bool },
}

/// Possible event.
#[derive(Clone, Copy, Debug)]
enum Event {
    Start(u32),
    Arrive {
        from: u32,
        to: u32,
    },
    ToCoordinator(u32),
    Order(u32),
    Step(u32),
    Write(u32),
    Notice,
    /// The launcher stops waiting for a rank's save.
    EndLate(u32),
    Restart,
}

/// Result of a run without a violation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Right,
    /// Too much was lost for the program to rebuild.
    Refused,
}

pub(super) struct World<'r> {
    rule: &'r Rule,
    ranks: u32,
    iterations: usize,
    random: SplitMix64,
    /// `true` if connections report a peer's end, as sockets do, unlike MPI.
    tells: bool,
    /// Failing saves, out of 16.
    failing_saves: u64,
    generation: u32,
    begun: Option<Restart>,
    coordinator: Box<dyn Coordinator>,
    processes: Vec<Option<Process>>,
    is_started: Vec<bool>,
    channels: BTreeMap<(u32, u32), VecDeque<Frame>>,
    reports: Vec<VecDeque<Vec<u8>>>,
    orders: Vec<VecDeque<Vec<u8>>>,
    news: VecDeque<News>,
    /// `true` once the launcher knows of a lost rank.
    is_ending: bool,
    disk: BTreeMap<(u32, u32), State>,
    /// States in memory outliving the processes, under a rule keeping them there, except those being changed.
    memory: BTreeMap<u32, State>,
    /// Ranks dead or failed to save in this generation; with states in memory, those dead while changing theirs, and
    /// still without one.
    gone: BTreeSet<u32>,
    kills: Vec<(usize, u32)>,
    pub(super) coverage: Coverage,
}

impl<'r> World<'r> {
    pub(super) fn new(rule: &'r Rule, config: &Config, seed: u64) -> Result<World<'r>, String> {
        let mut random = SplitMix64::seed_from_u64(seed);
        let mut below = |bound: u64| random.next_u64() % bound;
        let ranks = 2 + below(u64::from(config.ranks_max) - 1) as u32;
        let iterations = below(config.iterations_max as u64 + 1) as usize;
        let span = 30 + 6 * iterations as u64 * u64::from(ranks);
        let count = below(u64::from(config.kills_max) + 1);
        let mut kills: Vec<(usize, u32)> =
            (0..count).map(|_| (below(span) as usize, below(u64::from(ranks)) as u32)).collect();
        kills.sort_unstable();
        let (tells, failing_saves) = (below(2) == 0, if below(8) == 0 { 4 } else { 0 });
        let settings = RuleSettings::new(ranks, rule.options);
        let make = rule.make_coordinator.ok_or("the rule has no coordinator")?;
        let all = ranks as usize;
        Ok(World {
            rule,
            ranks,
            iterations,
            tells,
            failing_saves,
            generation: 0,
            begun: None,
            coordinator: make(0, &settings),
            processes: (0..ranks).map(|_| None).collect(),
            is_started: vec![false; all],
            channels: BTreeMap::new(),
            reports: vec![VecDeque::new(); all],
            orders: vec![VecDeque::new(); all],
            news: VecDeque::new(),
            is_ending: false,
            disk: BTreeMap::new(),
            memory: BTreeMap::new(),
            gone: BTreeSet::new(),
            kills,
            coverage: Coverage::default(),
            random,
        })
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.random.next_u64() % bound as u64) as usize
    }

    pub(super) fn run(&mut self) -> Result<End, String> {
        let most = EVENTS_MAX * (self.iterations + 1) * (self.kills.len() + 1);
        for number in 0..most {
            while let Some((_, victim)) = self.kills.first().copied().filter(|(at, _)| *at <= number) {
                self.kills.remove(0);
                self.kill(victim);
            }
            if self.is_done() {
                return self.judge().map(|()| End::Right);
            }
            let events = self.events();
            if events.is_empty() {
                return Err(format!("nothing can happen: {:?}", self.processes));
            }
            let event = events[self.below(events.len())];
            if !self.handle(event)? {
                self.coverage.refused += 1;
                return Ok(End::Refused);
            }
        }
        Err("it doesn't end".to_owned())
    }

    /// Returns `true` if all programs have ended and no known failure could restart the job.
    fn is_done(&mut self) -> bool {
        let done = |process: &mut Option<Process>| match process {
            Some(process) => process.exit.is_none() && process.program.next().is_none(),
            None => false,
        };
        !self.is_ending && self.news.is_empty() && self.processes.iter_mut().all(done)
    }

    fn judge(&self) -> Result<(), String> {
        let numbers = self.processes.iter().flatten().filter_map(|process| process.program.state());
        let numbers: Vec<u64> = numbers.map(|state| state.number).collect();
        let expected = results(self.ranks, self.iterations);
        if numbers != expected {
            return Err(format!("the result is {numbers:?}, not {expected:?}"));
        }
        let states: Vec<&State> =
            self.processes.iter().flatten().filter_map(|process| process.program.state()).collect();
        match states.iter().find(|state| state.sent != states[0].sent) {
            Some(other) => Err(format!("iterations are of two executions: {:?}, and {:?}", states[0].sent, other.sent)),
            None => Ok(()),
        }
    }

    fn events(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        for rank in 0..self.ranks {
            let at = rank as usize;
            let Some(process) = &mut self.processes[at] else {
                if !self.is_started[at] {
                    events.push(Event::Start(rank));
                }
                continue;
            };
            if !self.reports[at].is_empty() {
                events.push(Event::ToCoordinator(rank));
            }
            if process.exit.is_some() {
                events.push(Event::Write(rank));
                continue;
            }
            if process.is_changing {
                // No call meets a change.
                events.push(Event::Step(rank));
                continue;
            }
            if !self.orders[at].is_empty() {
                events.push(Event::Order(rank));
            }
            let may_step = match process.program.next() {
                None => false,
                Some(_) if !process.machine.is_running() => false,
                Some(Action::SendDone(to) | Action::SendBack(to) | Action::SendState(to) | Action::SendNumber(to)) => {
                    process.connected[to as usize]
                }
                Some(
                    Action::ReceiveDone(from)
                    | Action::ReceiveBack(from)
                    | Action::ReceiveState(from)
                    | Action::ReceiveNumber(from),
                ) => !process.inbox[from as usize].is_empty(),
                Some(Action::GoBack | Action::Apply | Action::Rebuilt) => true,
            };
            if may_step {
                events.push(Event::Step(rank));
            }
            let filled =
                (0..self.ranks).filter(|from| self.channels.get(&(*from, rank)).is_some_and(|of| !of.is_empty()));
            events.extend(filled.map(|from| Event::Arrive { from, to: rank }));
        }
        if !self.news.is_empty() {
            events.push(Event::Notice);
        }
        let is_left = |rank: &u32| self.processes[*rank as usize].is_some() || !self.is_started[*rank as usize];
        let alive: Vec<u32> = (0..self.ranks).filter(is_left).collect();
        if self.is_ending && self.news.is_empty() {
            // Rarely: a rank already told to end goes on to its exit.
            if let [rank, ..] = alive[..]
                && !events.is_empty()
                && self.random.next_u64().is_multiple_of(256)
            {
                events.push(Event::EndLate(rank));
            }
            if alive.is_empty() {
                events.push(Event::Restart);
            }
        }
        events
    }

    /// Handles an event.
    ///
    /// Returns `false` if the program refuses to go on.
    fn handle(&mut self, event: Event) -> Result<bool, String> {
        match event {
            Event::Start(rank) => return self.start(rank),
            Event::Arrive { from, to } => {
                let frame = self.channels.get_mut(&(from, to)).and_then(VecDeque::pop_front);
                if let Some(frame) = frame {
                    self.with(to, |process| arrive(process, (from, to), frame))?;
                }
            }
            Event::ToCoordinator(rank) => {
                if let Some(body) = self.reports[rank as usize].pop_front() {
                    let handled = self.coordinator.handle_control(Rank(rank), &body);
                    handled.map_err(|error| format!("the coordinator refuses: {error}"))?;
                    self.send_orders();
                    self.keep_needed();
                }
            }
            Event::Order(rank) => {
                if let Some(body) = self.orders[rank as usize].pop_front() {
                    let header = command_header(Rank(rank), &body);
                    self.with(rank, |process| {
                        let handled = process.machine.handle_control(Party::Coordinator, &header, &body);
                        handled.map_err(|error| error.to_string())
                    })?;
                }
            }
            Event::Step(rank) => self.step(rank)?,
            Event::Write(rank) => self.write(rank),
            Event::Notice => self.notice(),
            Event::EndLate(rank) => {
                self.is_started[rank as usize] = true;
                if !self.keeps_in_memory() {
                    self.gone.insert(rank);
                }
                self.kill(rank);
            }
            Event::Restart => self.restart()?,
        }
        Ok(true)
    }

    fn start(&mut self, rank: u32) -> Result<bool, String> {
        let (ranks, all, in_memory) = (self.ranks, self.ranks as usize, self.keeps_in_memory());
        let settings = RuleSettings::new(ranks, self.rule.options);
        let machine = (self.rule.make_rank)(Rank(rank), Incarnation(self.generation), &settings)
            .map_err(|error| error.to_string())?;
        let begun = self.begun.as_ref().and_then(|begun| Some((begun.loads?, &begun.lost)));
        let program = match begun {
            None => Program::new(rank, ranks, self.iterations),
            Some((loads, lost)) => {
                let lost: Vec<u32> = lost.iter().map(|rank| rank.0).collect();
                let saved = if in_memory { self.memory.get(&rank) } else { self.disk.get(&(loads, rank)) }.cloned();
                if saved.is_none() != lost.contains(&rank) {
                    return Err(format!(
                        "the state of rank {rank} for generation {loads}: {saved:?}, and lost are {lost:?}"
                    ));
                }
                let begins = (self.generation, in_memory);
                let Some(program) = Program::restart((rank, ranks), self.iterations, begins, saved, &lost) else {
                    return Ok(false);
                };
                program
            }
        };
        self.is_started[rank as usize] = true;
        self.processes[rank as usize] = Some(Process {
            machine,
            program,
            connected: vec![false; all],
            inbox: vec![VecDeque::new(); all],
            sent: vec![0; all],
            received: vec![0; all],
            exit: None,
            is_changing: false,
        });
        for peer in (0..ranks).filter(|peer| *peer != rank) {
            if self.processes[peer as usize].is_some() {
                self.greet(rank, peer)?;
                self.greet(peer, rank)?;
            }
        }
        self.with(rank, |_| Ok(()))?;
        Ok(true)
    }

    fn greet(&mut self, from: u32, to: u32) -> Result<(), String> {
        let Some(process) = self.processes[from as usize].as_ref().filter(|process| process.exit.is_none()) else {
            return Ok(());
        };
        let hello = process.machine.hello(Rank(to)).map_err(|error| error.to_string())?;
        self.channels.entry((from, to)).or_default().push_back(Frame::Hello(hello));
        Ok(())
    }

    /// Runs `act` on a process, and carries out the effects.
    fn with(&mut self, rank: u32, act: impl FnOnce(&mut Process) -> Result<(), String>) -> Result<(), String> {
        let Some(mut process) = self.processes[rank as usize].take() else { return Ok(()) };
        let mut done = act(&mut process);
        while done.is_ok()
            && let Some(effect) = process.machine.poll_effect()
        {
            done = self.carry_out(rank, &mut process, effect);
        }
        self.processes[rank as usize] = Some(process);
        done.map_err(|error| format!("rank {rank}: {error}"))
    }

    fn carry_out(&mut self, rank: u32, process: &mut Process, effect: Effect) -> Result<(), String> {
        match effect {
            Effect::Transmit { to: Party::Rank(to), header, body } if process.connected[to.index()] => {
                self.channels.entry((rank, to.0)).or_default().push_back(Frame::Control { header, body });
            }
            Effect::Transmit { to: Party::Rank(_), .. } => {}
            Effect::Transmit { to: Party::Coordinator, body, .. } => self.reports[rank as usize].push_back(body),
            Effect::SaveAndExit { saves } => {
                self.coverage.withheld += u64::from(!saves);
                process.exit = Some(Exit { saves, left: self.below(4) as u32 });
            }
            // A message is sent once its connection exists.
            Effect::Replay { .. } | Effect::Acknowledged { .. } | Effect::Covered { .. } => {}
            other => return Err(format!("the rule asks for {other:?}")),
        }
        Ok(())
    }

    fn keeps_in_memory(&self) -> bool {
        self.rule.properties.keeps_states_in_memory
    }

    /// Begins or ends a change to a rank's state in memory.
    ///
    /// Returns `true` if it is under way now.
    fn change(&mut self, rank: u32) -> bool {
        let Some(process) =
            self.processes[rank as usize].as_mut().filter(|_| self.rule.properties.keeps_states_in_memory)
        else {
            return false;
        };
        let is_change = matches!(process.program.next(), Some(Action::GoBack | Action::Apply));
        if is_change && process.program.state().is_some() && !process.is_changing {
            process.is_changing = true;
            self.memory.remove(&rank);
            return true;
        }
        process.is_changing = false;
        false
    }

    /// Publishes a rank's state in memory.
    fn publish(&mut self, rank: u32) {
        let process = self.processes[rank as usize].as_ref().filter(|_| self.keeps_in_memory());
        if let Some(state) = process.and_then(|process| process.program.state()) {
            self.memory.insert(rank, state.clone());
            self.gone.remove(&rank);
        }
    }

    fn step(&mut self, rank: u32) -> Result<(), String> {
        if self.change(rank) {
            return Ok(());
        }
        self.carry_out_step(rank)?;
        self.publish(rank);
        Ok(())
    }

    fn carry_out_step(&mut self, rank: u32) -> Result<(), String> {
        let generation = self.generation;
        let mut sent = None;
        self.with(rank, |process| {
            let received = match process.program.next() {
                Some(Action::SendDone(to) | Action::SendBack(to) | Action::SendState(to) | Action::SendNumber(to)) => {
                    let envelope = Envelope { source: Rank(rank), destination: Rank(to), tag: 0, comm: 0, len: 8 };
                    let mut header = process.machine.handle_send(&envelope).map_err(|error| error.to_string())?.header;
                    process.machine.handle_transmit(&mut header).map_err(|error| error.to_string())?;
                    process.sent[to as usize] += 1;
                    let (number, content) = (process.sent[to as usize], process.program.content());
                    sent = Some((to, Frame::Message { header, generation, number, content }));
                    None
                }
                Some(
                    Action::ReceiveDone(from)
                    | Action::ReceiveBack(from)
                    | Action::ReceiveState(from)
                    | Action::ReceiveNumber(from),
                ) => process.inbox[from as usize].pop_front(),
                Some(Action::Rebuilt) => {
                    process.machine.handle_rebuilt().map_err(|error| error.to_string())?;
                    None
                }
                Some(Action::GoBack | Action::Apply) | None => None,
            };
            match process.program.advance(received) {
                true => Ok(()),
                false => Err("a message that it doesn't expect".to_owned()),
            }
        })?;
        if let Some((to, frame)) = sent {
            self.channels.entry((rank, to)).or_default().push_back(frame);
        }
        Ok(())
    }

    /// Writes a part of a rank's state; after the last one, the process ends.
    fn write(&mut self, rank: u32) {
        let Some(process) = &mut self.processes[rank as usize] else { return };
        let Some(exit) = &mut process.exit else { return };
        if exit.left > 0 {
            exit.left -= 1;
            return;
        }
        let state = process.program.state().cloned().filter(|_| exit.saves);
        let fails = self.random.next_u64() % 16 < self.failing_saves;
        let saved = state.filter(|_| !fails);
        let is_saved = saved.is_some();
        if let Some(state) = saved {
            self.disk.insert((self.generation + 1, rank), state);
        } else if exit.saves {
            self.gone.insert(rank);
        }
        self.end(rank, News::Exited { rank, saved: is_saved });
    }

    fn kill(&mut self, rank: u32) {
        if self.processes[rank as usize].is_none() {
            return;
        }
        self.coverage.kills += 1;
        let is_changing = self.processes[rank as usize].as_ref().is_some_and(|process| process.is_changing);
        if is_changing || !self.keeps_in_memory() {
            self.gone.insert(rank);
        }
        // Some of its sent frames are lost with it.
        for peer in 0..self.ranks {
            let kept = self.below(4);
            if let Some(channel) = self.channels.get_mut(&(rank, peer)) {
                channel.truncate(kept);
            }
        }
        self.end(rank, News::Died(rank));
    }

    fn end(&mut self, rank: u32, news: News) {
        self.processes[rank as usize] = None;
        self.news.push_back(news);
        if self.tells {
            for peer in (0..self.ranks).filter(|peer| *peer != rank) {
                self.channels.entry((rank, peer)).or_default().push_back(Frame::Closed);
            }
        }
    }

    fn notice(&mut self) {
        let Some(news) = self.news.pop_front() else { return };
        self.is_ending = true;
        let (News::Died(rank) | News::Exited { rank, .. }) = news;
        // Its earlier reports come first.
        while let Some(body) = self.reports[rank as usize].pop_front() {
            let _ = self.coordinator.handle_control(Rank(rank), &body);
        }
        match news {
            News::Died(rank) => self.coordinator.handle_rank_lost(Rank(rank)),
            News::Exited { rank, saved: true } => self.coordinator.handle_saved(Rank(rank)),
            News::Exited { .. } => {}
        }
        self.send_orders();
    }

    fn send_orders(&mut self) {
        while let Some((rank, body)) = self.coordinator.poll_message() {
            self.orders[rank.index()].push_back(body);
        }
    }

    /// Removes states no failure needs, as a launcher does.
    fn keep_needed(&mut self) {
        if !self.is_ending {
            let needed = self.coordinator.needed_saves();
            let next = self.generation + 1;
            self.disk.retain(|(generation, _), _| Some(*generation) == needed || *generation == next);
        }
    }

    fn restart(&mut self) -> Result<(), String> {
        self.memory.keys().for_each(|rank| self.coordinator.handle_saved(Rank(*rank)));
        let begun = self.coordinator.restart().ok_or("the coordinator starts nothing again")?;
        self.coverage.restarts += 1;
        self.generation += 1;
        if begun.generation != self.generation {
            return Err(format!("generation {} begins after {}", begun.generation, self.generation - 1));
        }
        let lost: BTreeSet<u32> = begun.lost.iter().map(|rank| rank.0).collect();
        if begun.loads == Some(self.generation) && !lost.is_subset(&self.gone) {
            return Err(format!("lost are {lost:?}, and gone were {:?}", self.gone));
        }
        self.coverage.loaded_again += u64::from(begun.loads.is_some_and(|loads| loads < self.generation));
        self.coverage.begun_anew += u64::from(begun.loads.is_none());
        self.coverage.lost_one += u64::from(lost.len() == 1 && begun.loads.is_some());
        self.coverage.lost_two += u64::from(lost.len() > 1 && begun.loads.is_some());
        self.disk.retain(|(generation, _), _| Some(*generation) == begun.loads);
        let begins_anew = begun.loads.is_none();
        self.begun = Some(begun);
        self.is_ending = false;
        // A rank being rebuilt has no state until then.
        let keeps_states = self.keeps_in_memory() && !begins_anew;
        self.gone.retain(|rank| keeps_states && lost.contains(rank));
        if begins_anew {
            self.memory.clear();
        }
        self.channels.clear();
        self.is_started.fill(false);
        self.reports.iter_mut().chain(&mut self.orders).for_each(VecDeque::clear);
        Ok(())
    }
}

/// Handles an arrived frame.
fn arrive(process: &mut Process, (from, to): (u32, u32), frame: Frame) -> Result<(), String> {
    let machine = &mut process.machine;
    match frame {
        Frame::Hello(hello) => {
            machine.handle_hello(Rank(from), &hello).map_err(|error| error.to_string())?;
            process.connected[from as usize] = true;
            Ok(())
        }
        Frame::Closed => machine.handle_peer_lost(Rank(from)).map_err(|error| error.to_string()),
        Frame::Control { header, body } => {
            machine.handle_control(Party::Rank(Rank(from)), &header, &body).map_err(|error| error.to_string())
        }
        Frame::Message { header, generation, number, content } => {
            if generation != machine.incarnation().0 {
                return Err(format!("a message of generation {generation} from {from} to {to}"));
            }
            match machine.handle_message(&header).map_err(|error| error.to_string())? {
                Incoming::Deliver { .. } => {
                    process.received[from as usize] += 1;
                    if process.received[from as usize] != number {
                        return Err(format!("message {number} of rank {from} was delivered out of order"));
                    }
                    process.inbox[from as usize].push_back(content);
                }
                other => return Err(format!("message {number} of rank {from}: {other:?}")),
            }
            Ok(())
        }
    }
}
