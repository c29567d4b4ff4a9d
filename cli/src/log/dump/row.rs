//! Output of one record or one local log entry.

use counterfoil::{Rank, Record};
use counterfoil_ack_piggyback::{Flags, WireHeader};
use counterfoil_log_io::{LOCAL, LocalImage};
use counterfoil_profile::RecordTag;
use serde_json::{Value, json};

use super::super::lanes::{Lane, State};
use super::super::stores::count;
use super::DumpArguments;

/// Kind of the local log's final entry.
const SEAL: u8 = 255;

/// Lane name.
pub(super) fn lane_name(lane: Rank) -> String {
    if lane == LOCAL { "the local log".to_owned() } else { format!("the lane to {lane}") }
}

/// Heading and column names of a lane.
pub(super) fn lane_heading(name: Rank, lane: Option<&Lane<'_>>) -> String {
    let columns = format!(
        "    {:>8}  {:<14} {:>6} {:>6} {:>7} {:>9}  {}",
        "SSN", "state", "epoch", "phase", "prefix", "payload", "header"
    );
    match lane.map(|lane| lane.image) {
        _ if name == LOCAL => "  local log\n         SSN  kind                   key     bytes".to_owned(),
        Some(image) => format!(
            "  lane to {name}: next SSN {}, acknowledged up to {}, covered up to {}, {}\n{columns}",
            image.next.0,
            image.acked.0,
            image.covered.0,
            count(image.blocks.len(), "block")
        ),
        None => format!("  lane to {name}\n{columns}"),
    }
}

pub(super) fn as_text(state: State, record: &Record<'_>, arguments: &DumpArguments) -> String {
    let (epoch, phase) = state
        .epoch_and_phase()
        .map_or(("-".to_owned(), "-".to_owned()), |(epoch, phase)| (epoch.0.to_string(), phase.0.to_string()));
    let (ssn, name) = (record.ssn().0, state.name());
    let (prefix, payload) = (record.prefix().len(), record.payload().len());
    let header = match (header(record), RecordTag::from_prefix(record.prefix())) {
        (Some(header), _) => header_text(header, record.payload()),
        (None, Some(tag)) => tag_text(tag),
        (None, None) => String::new(),
    };
    let line = format!("    {ssn:>8}  {name:<14} {epoch:>6} {phase:>6} {prefix:>7} {payload:>9}  {header}");
    let mut text = line.trim_end().to_owned();
    if arguments.hex {
        text += &format!("\n              prefix   {}", hex(record.prefix(), arguments.bytes));
        text += &format!("\n              payload  {}", hex(record.payload(), arguments.bytes));
    }
    if arguments.payload {
        text += &format!("\n              payload  \"{}\"", escaped(record.payload(), arguments.bytes));
    }
    text
}

pub(super) fn as_json(lane: Rank, state: State, record: &Record<'_>, arguments: &DumpArguments) -> Value {
    let mut value = json!({
        "lane": if lane == LOCAL { json!("local") } else { json!(lane.0) },
        "ssn": record.ssn().0,
        "state": state.name(),
        "epoch": state.epoch_and_phase().map(|(epoch, _)| epoch.0),
        "phase": state.epoch_and_phase().map(|(_, phase)| phase.0),
        "prefix_bytes": record.prefix().len(),
        "payload_bytes": record.payload().len(),
        "header": match (header(record), RecordTag::from_prefix(record.prefix())) {
            (Some(header), _) => header_json(header, record.payload()),
            (None, Some(tag)) => tag_json(tag),
            (None, None) => Value::Null,
        },
    });
    if arguments.hex {
        value["prefix_hex"] = hex(record.prefix(), arguments.bytes).into();
        value["payload_hex"] = hex(record.payload(), arguments.bytes).into();
    }
    if arguments.payload {
        value["payload"] = escaped(record.payload(), arguments.bytes).into();
    }
    value
}

/// Parses the message header, if the record's prefix is one.
fn header<'a>(record: &'a Record<'_>) -> Option<&'a WireHeader> {
    let prefix = record.prefix();
    if prefix.len() == WireHeader::LEN { WireHeader::parse(prefix).ok() } else { None }
}

/// Verifies the header's checksum over the message.
///
/// Returns the JSON field's value.
fn checksum(header: &WireHeader, payload: &[u8]) -> &'static str {
    match header.verify(payload) {
        _ if !header.flags().contains(Flags::CHECKED) => "none",
        Ok(()) => "right",
        Err(_) => "wrong",
    }
}

fn header_text(header: &WireHeader, payload: &[u8]) -> String {
    let origin = header.origin();
    let checksum = match checksum(header, payload) {
        "right" => "ok",
        "wrong" => "mismatch",
        none => none,
    };
    format!(
        "{:?} {} -> {}, tag {}, comm {}, incarnation {}, epoch {}, phase {}, checksum {}",
        header.kind(),
        header.source().0,
        header.destination().0,
        header.tag(),
        header.comm(),
        origin.incarnation.0,
        origin.epoch.0,
        origin.phase.0,
        checksum
    )
}

fn header_json(header: &WireHeader, payload: &[u8]) -> Value {
    let origin = header.origin();
    json!({
        "kind": format!("{:?}", header.kind()), "source": header.source().0, "destination": header.destination().0,
        "tag": header.tag(), "comm": header.comm(), "payload_bytes": header.payload_len(), "ssn": header.ssn().0,
        "incarnation": origin.incarnation.0, "epoch": origin.epoch.0, "phase": origin.phase.0,
        "checksum": checksum(header, payload),
    })
}

fn tag_text(tag: RecordTag) -> String {
    let RecordTag { comm, number, .. } = tag;
    match tag.is_contribution() {
        true => format!("Contribution to operation {number}, comm {comm}"),
        false => format!("Message, tag {}, comm {comm}, number {number}", tag.tag),
    }
}

fn tag_json(tag: RecordTag) -> Value {
    let (kind, of) = if tag.is_contribution() { ("Contribution", None) } else { ("Message", Some(tag.tag)) };
    json!({ "kind": kind, "tag": of, "comm": tag.comm, "number": tag.number })
}

pub(super) fn entry_as_text(entry: &LocalImage, arguments: &DumpArguments) -> String {
    let kind = if entry.kind == SEAL { "seal".to_owned() } else { entry.kind.to_string() };
    let mut text = format!("    {:>8}  {kind:>4}  {:>20}  {:>8}", entry.ssn.0, entry.key, entry.bytes.len());
    if arguments.hex {
        text += &format!("\n              {}", hex(&entry.bytes, arguments.bytes));
    }
    if arguments.payload {
        text += &format!("\n              \"{}\"", escaped(&entry.bytes, arguments.bytes));
    }
    text
}

pub(super) fn entry_as_json(entry: &LocalImage, arguments: &DumpArguments) -> Value {
    let mut value = json!({
        "ssn": entry.ssn.0, "kind": entry.kind, "key": entry.key, "bytes": entry.bytes.len(), "seal": entry.kind == SEAL,
    });
    if arguments.hex {
        value["hex"] = hex(&entry.bytes, arguments.bytes).into();
    }
    if arguments.payload {
        value["text"] = escaped(&entry.bytes, arguments.bytes).into();
    }
    value
}

/// Formats at most `most` bytes, followed by `...` if there are more.
fn hex(bytes: &[u8], most: usize) -> String {
    let mut text: String = bytes.iter().take(most).map(|byte| format!("{byte:02x}")).collect();
    text += if bytes.len() > most { "..." } else { "" };
    text
}

/// Like [`hex`], but as text with escapes.
fn escaped(bytes: &[u8], most: usize) -> String {
    let mut text = bytes[..bytes.len().min(most)].escape_ascii().to_string();
    text += if bytes.len() > most { "..." } else { "" };
    text
}
