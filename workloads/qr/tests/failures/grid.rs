//! A process grid in one process: threads running one at a time, in seeded order. Some can be killed at any message;
//! the others learn of it at later messages, or when they would wait for ever.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::{Condvar, Mutex};
use std::thread;

use counterfoil_log_core::{StateMemory, StateMemoryError, has_state};
use counterfoil_qr::recover::{self, Parts, Replacement, Unrecoverable};
use counterfoil_qr::verify::{Residuals, residuals};
use counterfoil_qr::{Communication, Layout, Matrix, Place, Slot, State, Values, factor, weight};
use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// A process can't go on.
#[derive(Clone, Copy, Debug)]
struct Failed;

impl From<StateMemoryError> for Failed {
    fn from(error: StateMemoryError) -> Failed {
        panic!("{error}");
    }
}

/// A process's next action.
#[derive(Clone, Debug)]
enum Step {
    Send(Place, Vec<f64>),
    Receive(Place),
}

/// Result of a process's last step.
type Answer = Result<Vec<f64>, Failed>;

#[derive(Default)]
struct Shared {
    /// Steps of processes waiting for their turn.
    pending: BTreeMap<Place, Step>,
    answers: BTreeMap<Place, Answer>,
    mail: BTreeMap<(Place, Place), VecDeque<Vec<f64>>>,
    /// Processes running between two steps.
    running: usize,
}

impl Shared {
    fn can_go_on(&self, place: Place) -> bool {
        match &self.pending[&place] {
            Step::Send(..) => true,
            Step::Receive(from) => self.mail.get(&(*from, place)).is_some_and(|mail| !mail.is_empty()),
        }
    }

    fn answer(&mut self, place: Place, answer: Answer) {
        self.pending.remove(&place);
        self.answers.insert(place, answer);
        self.running += 1;
    }

    /// Carries out a process's step.
    fn carry_out(&mut self, place: Place) {
        let answer = match self.pending[&place].clone() {
            Step::Send(to, message) => {
                self.mail.entry((place, to)).or_default().push_back(message);
                Vec::new()
            }
            Step::Receive(from) => self.mail.get_mut(&(from, place)).and_then(VecDeque::pop_front).unwrap(),
        };
        self.answer(place, Ok(answer));
    }
}

#[derive(Default)]
struct World {
    shared: Mutex<Shared>,
    changed: Condvar,
}

/// A process's communication endpoint.
struct Process<'w> {
    world: &'w World,
    place: Place,
    process_rows: usize,
}

impl Process<'_> {
    fn step(&mut self, step: Step) -> Answer {
        let mut shared = self.world.shared.lock().unwrap();
        shared.pending.insert(self.place, step);
        shared.running -= 1;
        self.world.changed.notify_all();
        loop {
            if let Some(answer) = shared.answers.remove(&self.place) {
                return answer;
            }
            shared = self.world.changed.wait(shared).unwrap();
        }
    }

    fn send(&mut self, to: Place, values: &[f64]) -> Result<(), Failed> {
        self.step(Step::Send(to, values.to_vec())).map(drop)
    }

    fn receive(&mut self, from: Place, values: &mut [f64]) -> Result<(), Failed> {
        values.copy_from_slice(&self.step(Step::Receive(from))?);
        Ok(())
    }
}

impl Communication for Process<'_> {
    type Error = Failed;

    /// Some may get the sum, and others never.
    fn sum_column(&mut self, values: &mut [f64]) -> Result<(), Failed> {
        let column = self.place.column;
        let at = |row| Place { row, column };
        if self.place.row > 0 {
            self.send(at(0), values)?;
            return self.receive(at(0), values);
        }
        let mut other = vec![0.0; values.len()];
        for row in 1..self.process_rows {
            self.receive(at(row), &mut other)?;
            values.iter_mut().zip(&other).for_each(|(sum, other)| *sum += other);
        }
        (1..self.process_rows).try_for_each(|row| self.send(at(row), values))
    }

    fn send_in_row(&mut self, column: usize, values: &[f64]) -> Result<(), Failed> {
        self.send(Place { row: self.place.row, column }, values)
    }

    fn receive_in_row(&mut self, column: usize, values: &mut [f64]) -> Result<(), Failed> {
        self.receive(Place { row: self.place.row, column }, values)
    }
}

/// Notes the end of a process.
struct End<'w>(&'w World);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.shared.lock().unwrap().running -= 1;
        self.0.changed.notify_all();
    }
}

/// Processes to kill, at a given message.
#[derive(Clone, Debug)]
pub(crate) struct Kill {
    pub(crate) at: usize,
    pub(crate) victims: Vec<Place>,
}

/// Counters of a run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ran {
    /// Messages sent and received.
    pub(crate) steps: usize,
    /// `true` if processes were killed.
    pub(crate) has_failed: bool,
    waits_for_ever: bool,
    /// Most iterations by which a survivor was ahead of another.
    pub(crate) skew: usize,
    /// `true` if a message between survivors was lost.
    pub(crate) has_lost_message: bool,
}

/// Saves and loads a state; the result is equal.
fn saved_and_loaded(layout: &Layout, state: &State) -> State {
    let (numbers, arrays) = state.parts();
    let mut saved = arrays.iter();
    let loaded = State::from_parts(layout, &numbers, |len| {
        let array: &Values = saved.next().unwrap();
        assert_eq!(array.len(), len);
        Ok::<_, Failed>(array.clone())
    });
    let loaded = loaded.unwrap().unwrap();
    assert!(loaded == *state && saved.next().is_none());
    let cut = &numbers[..numbers.len() - 1];
    let none = |len| Ok::<_, Failed>(Values::from(vec![0.0; len]));
    assert!(State::from_parts(layout, cut, none).unwrap().is_none());
    loaded
}

/// Process memory outliving the processes.
pub(crate) struct Memories(tempfile::TempDir);

impl Memories {
    fn new() -> Memories {
        Memories(tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap())
    }

    fn path(&self, place: Place) -> PathBuf {
        self.0.path().join(format!("state-{}-{}", place.row, place.column))
    }

    fn settle(&self, layout: &Layout, state: &mut State) {
        let (path, bytes) = (self.path(state.place()), State::memory_bytes_max(layout, state.place()));
        let _ = std::fs::remove_file(&path);
        state.settle(StateMemory::create(&path, bytes).unwrap()).unwrap();
    }

    /// Returns the state found by the next process at this place; `None` if it was being changed.
    fn found(&self, layout: &Layout, place: Place) -> Option<State> {
        let path = self.path(place);
        has_state(&path).unwrap().then(|| State::found(layout, StateMemory::open(&path).unwrap()).unwrap())
    }
}

/// Factorization, with all processes' states.
pub(crate) struct Job {
    pub(crate) layout: Layout,
    pub(crate) matrix: Matrix,
    pub(crate) states: BTreeMap<Place, State>,
    /// Lagging process, so the others get as far ahead of it as they can.
    pub(crate) slow: Option<Place>,
    /// States outliving their processes without being saved.
    memories: Option<Memories>,
    random: SplitMix64,
}

impl Job {
    pub(crate) fn new(layout: &Layout, matrix: &Matrix, seed: u64) -> Job {
        let largest = |column: &[f64]| column.iter().fold(0.0_f64, |largest, value| largest.max(value.abs()));
        let weights = (0..matrix.columns()).map(|column| weight(largest(matrix.column(column))));
        Job::with_weights(layout, matrix, seed, weights.collect())
    }

    pub(crate) fn with_weights(layout: &Layout, matrix: &Matrix, seed: u64, weights: Vec<f64>) -> Job {
        let state = |place| State::new(layout, place, weights.clone(), |row, column| matrix.column(column)[row]);
        let states = layout.places().map(|place| (place, state(place))).collect();
        let random = SplitMix64::seed_from_u64(seed);
        Job { layout: layout.clone(), matrix: matrix.clone(), states, slow: None, memories: None, random }
    }

    /// Keeps the states in memory outliving the processes: then killed ones' aren't lost.
    pub(crate) fn keep_in_memory(&mut self) {
        let memories = self.memories.insert(Memories::new());
        self.states.values_mut().for_each(|state| memories.settle(&self.layout, state));
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.random.next_u64() % bound as u64) as usize
    }

    /// Runs to the end, or to a failure, from which the job recovers.
    pub(crate) fn run(&mut self, kill: Option<&Kill>) -> Result<Ran, Unrecoverable> {
        let (layout, world) = (self.layout.clone(), World::default());
        world.shared.lock().unwrap().running = self.states.len();
        let mut states = std::mem::take(&mut self.states);
        let mut ran = Ran::default();
        thread::scope(|scope| {
            for (place, state) in &mut states {
                let (world, layout) = (&world, &layout);
                scope.spawn(move || {
                    let process_rows = layout.grid().rows;
                    let mut process = Process { world, place: *place, process_rows };
                    let _end = End(world);
                    // A survivor keeps what it has registered.
                    let _ = factor(layout, state, &mut process);
                });
            }
            ran = self.schedule(&world, kill);
        });
        self.states = states;
        assert!(!ran.waits_for_ever, "processes wait for messages that nobody sends");
        if let (true, Some(kill)) = (ran.has_failed, kill) {
            let shared = world.shared.into_inner().unwrap();
            let is_dead = |place: &Place| kill.victims.contains(place);
            ran.has_lost_message =
                shared.mail.iter().any(|((from, to), mail)| !mail.is_empty() && !is_dead(from) && !is_dead(to));
            if let Some(memories) = &self.memories {
                // Unpublished data is gone with its process.
                let places: Vec<Place> = std::mem::take(&mut self.states).into_keys().collect();
                let found = |place| (place, memories.found(&layout, place).expect("no message meets a change"));
                self.states = places.into_iter().map(found).collect();
            } else {
                self.states.retain(|place, _| !is_dead(place));
                self.states.values_mut().for_each(|state| *state = saved_and_loaded(&layout, state));
            }
            let done = || self.states.values().map(State::done).filter(|done| *done < layout.panels());
            ran.skew = done().max().zip(done().min()).map_or(0, |(most, least)| most - least);
            let lost: Vec<Place> = if self.memories.is_some() { Vec::new() } else { kill.victims.clone() };
            self.recover(&lost)?;
        }
        Ok(ran)
    }

    fn schedule(&mut self, world: &World, kill: Option<&Kill>) -> Ran {
        let mut ran = Ran::default();
        let mut shared = world.shared.lock().unwrap();
        loop {
            while shared.running > 0 {
                shared = world.changed.wait(shared).unwrap();
            }
            let waiting: Vec<Place> = shared.pending.keys().copied().collect();
            let able: Vec<Place> = waiting.iter().copied().filter(|place| shared.can_go_on(*place)).collect();
            if let Some(kill) = kill.filter(|kill| kill.at == ran.steps && !ran.has_failed)
                && !waiting.is_empty()
            {
                ran.has_failed = true;
                for victim in waiting.iter().filter(|place| kill.victims.contains(place)) {
                    shared.answer(*victim, Err(Failed));
                }
                // Their sent messages may be lost with them.
                if self.below(2) == 0 {
                    shared.mail.retain(|(from, _), _| !kill.victims.contains(from));
                }
            } else if able.is_empty() {
                if waiting.is_empty() {
                    return ran;
                }
                ran.waits_for_ever = !ran.has_failed;
                waiting.into_iter().for_each(|place| shared.answer(place, Err(Failed)));
            } else {
                let others: Vec<Place> = able.iter().copied().filter(|place| Some(*place) != self.slow).collect();
                let from = if others.is_empty() || self.below(32) == 0 { able } else { others };
                let place = from[self.below(from.len())];
                ran.steps += 1;
                if ran.has_failed && self.below(4) == 0 {
                    shared.answer(place, Err(Failed));
                } else {
                    shared.carry_out(place);
                }
            }
            world.changed.notify_all();
        }
    }

    fn recover(&mut self, lost: &[Place]) -> Result<(), Unrecoverable> {
        let layout = &self.layout;
        recover::check(layout, lost)?;
        let to = self.states.values().map(|state| state.protected(layout)).min().unwrap();
        self.states.values_mut().for_each(|state| state.undo(layout, to).unwrap());
        let factors: BTreeMap<usize, Matrix> = self.states.values().flat_map(|state| state.factors().clone()).collect();
        assert!(factors.keys().copied().eq(0..to));
        let weights = self.states.values().next().unwrap().weights().to_vec();
        for place in lost {
            let row: Vec<&State> = self.states.values().filter(|state| state.place().row == place.row).collect();
            let sum = |slot: Slot| {
                let mut sum = Parts::zeros(layout, place.row);
                row.iter().for_each(|state| recover::add_contribution(&mut sum, layout, state, slot, to));
                sum
            };
            let mut replacement = Replacement::new(layout, *place, weights.clone(), factors.clone(), to);
            for slot in counterfoil_qr::slots(layout, *place) {
                replacement.store(slot, &mut sum(slot));
            }
            let state = replacement.finish();
            self.states.insert(*place, state);
        }
        Ok(())
    }

    pub(crate) fn residuals(&self) -> Residuals {
        let states: Vec<&State> = self.states.values().collect();
        residuals(&self.layout, &self.matrix, &states)
    }
}
