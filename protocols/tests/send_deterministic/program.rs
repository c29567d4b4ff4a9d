//! Send-deterministic programs whose wildcard receives are ordered by causality alone.

/// SplitMix64: a schedule is its seed.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// From 0 to `bound - 1`.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }

    pub(crate) fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}

/// Spreads the bits of a number.
pub(crate) fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Send {
        to: usize,
        tag: i32,
    },
    /// From anyone who sends with this tag.
    Receive {
        tag: i32,
    },
}

/// What each rank does.
pub(crate) type Program = Vec<Vec<Op>>;

/// Tokens wander from rank to rank. Whoever is to have one next takes the first message with its tag, whoever sent it: two
/// messages of one token are never under way at once in a failure-free run, so their order is causal and nothing else.
pub(crate) fn tokens(random: &mut Random, ranks: usize, tokens: usize, hops: usize) -> Program {
    let mut program = vec![Vec::new(); ranks];
    let mut at: Vec<usize> = (0..tokens).map(|_| random.below(ranks)).collect();
    let mut begun = vec![false; tokens];
    for _ in 0..hops {
        let token = random.below(tokens);
        let (from, to) = (at[token], (at[token] + 1 + random.below(ranks - 1)) % ranks);
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

/// The state of a program: its image, without what was received and not taken.
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

/// Every payload of every channel, in order, and the final states: what a failure-free run gives.
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
