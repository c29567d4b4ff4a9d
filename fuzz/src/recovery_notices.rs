//! Fuzz body for the notices of the send-deterministic rule: a simulated job in which their bytes change on their way.

use arbitrary::Unstructured;
use counterfoil_protocols::send_deterministic;
use counterfoil_simulator::{self as simulator, Damage, Fault, Mode, Pattern, Schedule, Shape, Tier};

/// Tests that no process panics, whatever a notice says, and an undamaged job ends right.
pub fn recovery_notices(data: &[u8]) {
    let mut input = Unstructured::new(data);
    let Ok(&[pattern, ranks, rounds, options, faults, damages]) = input.bytes(6) else { return };
    let patterns: Vec<Pattern> = Pattern::ALL.into_iter().filter(|pattern| pattern.fixed_ranks().is_none()).collect();
    let shape = Shape {
        pattern: patterns[usize::from(pattern) % patterns.len()],
        ranks: 2 + u32::from(ranks % 3),
        rounds: 1 + u32::from(rounds % 4),
        seed: u64::from(rounds),
        checkpoint_one_in: u32::from(options % 3),
        ordered: false,
    };
    let mut schedule = Schedule {
        shape,
        tier: if options & 16 == 0 { Tier::Volatile } else { Tier::ProcessCrashSafe },
        mode: Mode::Uniform,
        seed: 0,
        faults: Vec::new(),
        collections: u32::from(options >> 5 & 3),
        clusters: u32::from(options >> 3 & 1) * 2,
        late: options & 4 != 0,
        revoked: false,
        unnamed: false,
        clocks: false,
        background: options & 128 != 0,
        overtaking: false,
        canary: None,
    };
    for _ in 0..faults % 4 {
        let Ok(&[at, node, effects]) = input.bytes(3) else { break };
        let effects = (effects < 128).then_some(u32::from(effects % 4));
        schedule.faults.push(Fault { at: u64::from(at) * 2, node: node.into(), seed: at.into(), effects });
    }
    let mut changes = Vec::new();
    for _ in 0..damages % 4 {
        let Ok(&[notice, at, bits]) = input.bytes(3) else { break };
        changes.push(Damage { notice: notice.into(), at: at.into(), bits: bits.max(1) });
    }
    schedule.mode = Mode::Listed(input.take_rest().iter().map(|&choice| choice.into()).collect());
    let (outcome, done) = simulator::run_damaged(&send_deterministic::RULE, &schedule, changes);
    assert!(done > 0 || outcome.violation.is_none(), "{:?} of {schedule}", outcome.violation);
}
