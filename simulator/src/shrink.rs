//! Shrinks a failing schedule, as long as it fails in the same way.
//!
//! First fewer ranks, rounds and checkpoints: a smaller shape makes another program, so for each some seeds and moments
//! are tried. Then fewer faults. Then the choices themselves: the shortest list after which the first possible event
//! suffices, with as many of its entries as possible set to the first too. Finally, smaller seeds. Every attempt is a
//! run, and their number is limited.

use counterfoil_protocols::api::Rule;

use super::schedule::{Mode, Schedule};
use super::violation::Violation;
use super::{program::Shape, run};
use crate::random::Random;

/// Result of shrinking.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shrunk {
    /// Smallest failing schedule found.
    pub schedule: Schedule,
    /// Violation of that schedule.
    pub violation: Violation,
    /// Number of runs.
    pub runs: u32,
}

/// Number of seeds tried for a smaller shape.
const ATTEMPTS_PER_SHAPE: u64 = 100;

/// Shrinks a schedule within `runs_max` runs (5,000 are plenty for a small one).
///
/// Returns `None` if it doesn't fail.
pub fn shrink(rule: &Rule, schedule: &Schedule, runs_max: u32) -> Option<Shrunk> {
    let outcome = run(rule, schedule);
    let violation = outcome.violation?;
    let mut search = Search {
        rule,
        best: Shrunk { schedule: schedule.clone(), violation, runs: 1 },
        choices: outcome.choices,
        runs_max,
    };
    loop {
        let shape = search.smaller_shape();
        let faults = search.fewer_faults();
        if !shape && !faults {
            break;
        }
    }
    search.fewer_choices();
    search.fewer_faults();
    search.smaller_seeds();
    Some(search.best)
}

struct Search<'a> {
    rule: &'a Rule,
    best: Shrunk,
    /// Choices in the best schedule's run.
    choices: Vec<u32>,
    runs_max: u32,
}

impl Search<'_> {
    /// Takes the candidate if it fails in the same way.
    fn attempt(&mut self, schedule: Schedule) -> bool {
        if self.best.runs >= self.runs_max {
            return false;
        }
        self.best.runs += 1;
        let outcome = run(self.rule, &schedule);
        let Some(violation) = outcome.violation else { return false };
        if violation.kind.name() != self.best.violation.kind.name() {
            return false;
        }
        self.best = Shrunk { schedule, violation, runs: self.best.runs };
        self.choices = outcome.choices;
        true
    }

    fn smaller_shape(&mut self) -> bool {
        let mut smaller = false;
        loop {
            let Shape { ranks, rounds, checkpoint_one_in, ordered, .. } = self.best.schedule.shape;
            let now = self.best.schedule.shape;
            let candidates = [
                (ranks > 2).then(|| Shape { ranks: 2.max(ranks / 2), ..now }),
                (ranks > 3).then(|| Shape { ranks: ranks - 1, ..now }),
                (rounds > 1).then(|| Shape { rounds: 1.max(rounds / 2), ..now }),
                (rounds > 2).then(|| Shape { rounds: rounds - 1, ..now }),
                (checkpoint_one_in > 0).then_some(Shape { checkpoint_one_in: 0, ..now }),
                ordered.then_some(Shape { ordered: false, ..now }),
            ];
            if !candidates.into_iter().flatten().any(|shape| self.attempt_shape(shape)) {
                return smaller;
            }
            smaller = true;
        }
    }

    /// Tries a smaller shape, with other seeds and moments too, because its events come at other moments.
    fn attempt_shape(&mut self, shape: Shape) -> bool {
        let mut random = Random::new(shape.seed);
        let before = self.best.violation.event.max(1);
        for attempt in 0..ATTEMPTS_PER_SHAPE {
            let mut schedule = Schedule { shape, ..self.best.schedule.clone() };
            if matches!(schedule.mode, Mode::Listed(_)) {
                schedule.mode = Mode::Uniform;
            }
            if attempt > 0 {
                schedule.seed = random.next();
                schedule.mode = if random.one_in(2) { Mode::Uniform } else { Mode::Priorities { falls: 3 } };
                for fault in &mut schedule.faults {
                    fault.at = random.below(before);
                    fault.seed = random.next();
                    fault.node = random.between(0, shape.ranks - u32::from(!self.rule.properties.has_coordinator));
                }
            }
            if self.attempt(schedule) {
                return true;
            }
        }
        false
    }

    fn fewer_faults(&mut self) -> bool {
        let mut fewer = false;
        let mut place = 0;
        while place < self.best.schedule.faults.len() {
            let mut schedule = self.best.schedule.clone();
            schedule.faults.remove(place);
            if self.attempt(schedule) {
                fewer = true;
                continue;
            }
            let mut schedule = self.best.schedule.clone();
            if schedule.faults[place].effects.take().is_some() {
                fewer |= self.attempt(schedule);
            }
            place += 1;
        }
        fewer
    }

    /// Tries smaller seeds, which are easier to read and to type.
    fn smaller_seeds(&mut self) {
        let with = |change: &dyn Fn(&mut Schedule), best: &Schedule| {
            let mut schedule = best.clone();
            change(&mut schedule);
            schedule
        };
        for seed in 0..8 {
            if self.attempt(with(&|schedule| schedule.shape.seed = seed, &self.best.schedule)) {
                break;
            }
        }
        for seed in 0..8 {
            if self.attempt(with(&|schedule| schedule.seed = seed, &self.best.schedule)) {
                break;
            }
        }
        for place in 0..self.best.schedule.faults.len() {
            for seed in 0..8 {
                if self.attempt(with(&|schedule| schedule.faults[place].seed = seed, &self.best.schedule)) {
                    break;
                }
            }
        }
    }

    fn fewer_choices(&mut self) {
        if !self.attempt_choices(self.choices.clone()) {
            return;
        }
        self.cut_choices();
        let mut len = self.choices().len().next_power_of_two();
        while len > 0 {
            let mut at = 0;
            while at < self.choices().len() {
                let mut choices = self.choices().to_vec();
                let end = choices.len().min(at + len);
                if choices[at..end].iter().any(|&choice| choice > 0) {
                    choices[at..end].fill(0);
                    self.attempt_choices(choices);
                }
                at += len;
            }
            len /= 2;
        }
        self.cut_choices();
    }

    /// Finds the shortest sufficient list, or nearly.
    fn cut_choices(&mut self) {
        let mut step = self.choices().len();
        while step > 0 {
            let len = self.choices().len();
            let shorter = len >= step && self.attempt_choices(self.choices()[..len - step].to_vec());
            if !shorter {
                step /= 2;
            }
        }
    }

    /// Tries a list of choices, without zeros at its end, which have no effect.
    fn attempt_choices(&mut self, mut choices: Vec<u32>) -> bool {
        while choices.last() == Some(&0) {
            choices.pop();
        }
        self.attempt(Schedule { mode: Mode::Listed(choices), ..self.best.schedule.clone() })
    }

    fn choices(&self) -> &[u32] {
        match &self.best.schedule.mode {
            Mode::Listed(choices) => choices,
            Mode::Uniform | Mode::Priorities { .. } | Mode::Stalls { .. } => &[],
        }
    }
}
