//! Records lost by a repair, as text and as JSON.

use counterfoil_log_io::{Bound, LOCAL, Loss, Repair};
use indicatif::BinaryBytes;
use serde_json::{Value, json};

use super::stores::count;

/// Splits a repair into its steps and the records lost.
pub(super) fn split_losses(repairs: Vec<Repair>) -> (Vec<Repair>, Vec<Loss>) {
    let mut losses = Vec::new();
    let mut steps = repairs;
    steps.retain(|step| match step {
        Repair::Loss(of) => {
            losses.push(*of);
            false
        }
        _ => true,
    });
    (steps, losses)
}

/// Formats, for example, "39 records (61 KiB) in 2 blocks of the lane to rank 2".
pub(super) fn loss_text(of: &Loss) -> String {
    let (bound, records) = (of.bound.qualifier(), count(of.records as usize, "record"));
    let (size, blocks) = (BinaryBytes(of.bytes), count(of.blocks as usize, "block"));
    let lane = if of.lane == LOCAL { "the local log".to_owned() } else { format!("the lane to {}", of.lane) };
    format!("{bound}{records} ({size}) in {blocks} of {lane}")
}

/// Returns one object per lane.
pub(super) fn losses_json(losses: &[Loss]) -> Value {
    let lanes = losses.iter().map(|of| {
        let lane = if of.lane == LOCAL { json!("local") } else { json!(of.lane.0) };
        let bound = match of.bound {
            Bound::Exact => "exact",
            Bound::AtMost => "at most",
            Bound::Listed => "listed",
        };
        json!({ "lane": lane, "records": of.records, "bytes": of.bytes, "blocks": of.blocks, "bound": bound })
    });
    lanes.collect()
}
