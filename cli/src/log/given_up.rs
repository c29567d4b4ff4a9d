//! How much a repair gives up, for people and as JSON.

use counterfoil::store::{Bound, GivenUp, LOCAL, Repair};
use serde_json::{Value, json};

use super::stores::{bytes, count};

/// What a repair does, and what it gives up by that.
pub(super) fn split(repairs: Vec<Repair>) -> (Vec<Repair>, Vec<GivenUp>) {
    let mut given_up = Vec::new();
    let mut steps = repairs;
    steps.retain(|step| match step {
        Repair::GivenUp(of) => {
            given_up.push(*of);
            false
        }
        _ => true,
    });
    (steps, given_up)
}

/// "39 records (61 KiB) in 2 blocks of the lane to rank 2".
pub(super) fn given_up_text(of: &GivenUp) -> String {
    let (bound, records) = (of.bound.words(), count(of.records as usize, "record"));
    let (size, blocks) = (bytes(of.bytes), count(of.blocks as usize, "block"));
    let lane = if of.lane == LOCAL { "the local log".to_owned() } else { format!("the lane to {}", of.lane) };
    format!("{bound}{records} ({size}) in {blocks} of {lane}")
}

/// One object for each lane.
pub(super) fn given_up_json(given_up: &[GivenUp]) -> Value {
    let lanes = given_up.iter().map(|of| {
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
