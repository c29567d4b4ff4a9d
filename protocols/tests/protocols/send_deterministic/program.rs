//! Send-deterministic programs with wildcard receives ordered by causality alone.

use crate::random::{Random, mix};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Send {
        to: usize,
        tag: i32,
    },
    /// Receive from any source with this tag.
    Receive {
        tag: i32,
    },
}

/// Operations of each rank.
pub(crate) type Program = Vec<Vec<Op>>;

/// Tokens wander from rank to rank.
///
/// The next owner takes the first message with the token's tag, from any source: two messages for one token are never
/// under way at once in a failure-free run, so only causality orders them.
pub(crate) fn tokens(random: &mut Random, ranks: usize, tokens: usize, hops: usize) -> Program {
    let mut program = vec![Vec::new(); ranks];
    let mut at: Vec<usize> = (0..tokens).map(|_| random.index(ranks)).collect();
    let mut begun = vec![false; tokens];
    for _ in 0..hops {
        let token = random.index(tokens);
        let (from, to) = (at[token], (at[token] + 1 + random.index(ranks - 1)) % ranks);
        let tag = token as i32;
        if std::mem::replace(&mut begun[token], true) {
            program[from].push(Op::Receive { tag });
        }
        program[from].push(Op::Send { to, tag });
        at[token] = to;
    }
    for token in 0..tokens {
        if begun[token] {
            program[at[token]].push(Op::Receive { tag: token as i32 });
        }
    }
    program
}

/// Program state: its image, without received, untaken messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Image {
    pub(crate) at: usize,
    pub(crate) state: u64,
}

impl Image {
    pub(crate) fn payload(&self) -> u64 {
        mix(self.state ^ self.at as u64)
    }

    pub(crate) fn take(&mut self, payload: u64) {
        self.state = mix(self.state.rotate_left(7) ^ payload);
    }
}

/// Returns every payload on every channel, in order, and the final states in a failure-free run.
pub(crate) fn failure_free(program: &Program) -> (Vec<Vec<Vec<u64>>>, Vec<Image>) {
    let ranks = program.len();
    let mut images = vec![Image::default(); ranks];
    let mut sent = vec![vec![Vec::new(); ranks]; ranks];
    let mut arrived: Vec<Vec<(i32, u64)>> = vec![Vec::new(); ranks];
    let mut moved = true;
    while moved {
        moved = false;
        for rank in 0..ranks {
            while let Some(&op) = program[rank].get(images[rank].at) {
                match op {
                    Op::Send { to, tag } => {
                        let payload = images[rank].payload();
                        sent[rank][to].push(payload);
                        arrived[to].push((tag, payload));
                    }
                    Op::Receive { tag } => {
                        let Some(found) = arrived[rank].iter().position(|&(other, _)| other == tag) else { break };
                        let (_, payload) = arrived[rank].remove(found);
                        images[rank].take(payload);
                    }
                }
                images[rank].at += 1;
                moved = true;
            }
        }
    }
    (sent, images)
}
