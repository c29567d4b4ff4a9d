//! Call arguments in Rust: names, types, and the descriptions of messages and operations.

use counterfoil_mpi_calls::{Argument, Call, Kind};

/// Returns a Rust identifier: `type` is a keyword.
pub(crate) fn ident(name: &str) -> &str {
    if name == "type" { "datatype" } else { name }
}

/// Returns a call's parameters, with their types.
pub(crate) fn parameters(call: &Call) -> String {
    let parameter = |argument: &Argument| format!("{}: {}", ident(&argument.name), argument.kind.rust(call.is_large));
    call.arguments.iter().map(parameter).collect::<Vec<_>>().join(", ")
}

/// Returns its arguments' names.
pub(crate) fn names(call: &Call) -> String {
    call.arguments.iter().map(|argument| ident(&argument.name)).collect::<Vec<_>>().join(", ")
}

/// Returns the argument name present in the call, out of two.
pub(crate) fn either<'a>(call: &'a Call, one: &'a str, other: &'a str) -> &'a str {
    ident(if call.named(one).is_some() { one } else { other })
}

pub(crate) fn outgoing(call: &Call) -> String {
    let partitions = if call.named("partitions").is_some() { "i64::from(partitions)" } else { "1" };
    format!(
        "Outgoing {{ buf: {}.cast(), count: i64::from({}) * {partitions}, datatype: {}, dest, tag: {}, comm }}",
        either(call, "sendbuf", "buf"),
        either(call, "sendcount", "count"),
        either(call, "sendtype", "type"),
        either(call, "sendtag", "tag"),
    )
}

pub(crate) fn incoming(call: &Call) -> String {
    let into = if call.argument(Kind::Out).is_some() {
        format!(
            "buf: {}.cast(), count: i64::from({}), datatype: {}",
            either(call, "recvbuf", "buf"),
            either(call, "recvcount", "count"),
            either(call, "recvtype", "type"),
        )
    } else {
        "buf: std::ptr::null_mut(), count: 0, datatype: ffi::RSMPI_UINT8_T".to_owned()
    };
    format!("Incoming {{ {into}, source, tag: {}, comm }}", either(call, "recvtag", "tag"))
}

/// Renders a collective operation's description; `more` has a library's own fields.
pub(crate) fn collective(call: &Call, more: &str) -> String {
    let option = |kind| call.argument(kind).map_or("None".to_owned(), |argument| format!("Some({})", argument.name));
    format!(
        "Collective {{ operation: Operation::{}, comm, root: {}, send: {}, receive: {}, {more} }}",
        camel(&call.base),
        option(Kind::Root),
        side(call, "send"),
        side(call, "recv")
    )
}

/// Renders a rank's memory for one direction: `None` where the operation has none.
pub(crate) fn side(call: &Call, of: &str) -> String {
    let name = |what: &str| format!("{of}{what}");
    let find = |names: &[String]| names.iter().find_map(|name| call.named(name)).cloned();
    let Some(buf) = find(&[name("buf"), "buf".to_owned()]) else { return "None".to_owned() };
    let counts =
        find(&[name("counts"), name("count"), "count".to_owned(), "recvcounts".to_owned(), "recvcount".to_owned()]);
    let types = find(&[name("types"), name("type"), "type".to_owned()]);
    let letter = &of[..1];
    let displs = find(&[format!("{letter}displs")]).or_else(|| {
        // In operations with one array of displacements, it belongs to the side with several counts.
        call.named("displs").filter(|_| call.named(&name("counts")).is_some()).cloned()
    });
    let counts = counts.map_or("Counts::One(0)".to_owned(), |counts| match (counts.kind, call.is_large) {
        (Kind::Count, _) => format!("Counts::One(i64::from({}))", counts.name),
        (_, false) => format!("Counts::Many({})", counts.name),
        (_, true) => format!("Counts::ManyLarge({})", counts.name),
    });
    let displs = displs.map_or("Displs::Contiguous".to_owned(), |displs| match (displs.kind, call.is_large) {
        (Kind::Displs, false) if call.argument(Kind::Types).is_none() => format!("Displs::Elements({})", displs.name),
        (Kind::Displs, true) if call.argument(Kind::Types).is_none() => {
            format!("Displs::ElementsLarge({})", displs.name)
        }
        (Kind::Displs, false) => format!("Displs::Bytes({})", displs.name),
        _ => format!("Displs::BytesLarge({})", displs.name),
    });
    let types = types.map_or("Types::One(ffi::RSMPI_UINT8_T)".to_owned(), |types| match types.kind {
        Kind::Type => format!("Types::One({})", ident(&types.name)),
        _ => format!("Types::Many({})", types.name),
    });
    format!("Some(Side {{ buf: {}.cast(), counts: {counts}, displs: {displs}, types: {types} }})", buf.name)
}

/// Returns a Rust name for one like `Reduce_scatter_block`.
pub(crate) fn camel(name: &str) -> String {
    name.split('_').map(|part| part[..1].to_uppercase() + &part[1..]).collect()
}

/// Renders the enumeration of the collective operations among the calls.
pub(crate) fn operations(calls: &[Call]) -> String {
    let variant = |base: &&str| format!("    #[doc = \"`MPI_{base}`.\"]\n    {},\n", camel(base));
    format!(
        "/// The collective operations.\n\
         #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]\n\
         pub(crate) enum Operation {{\n{}}}\n",
        collectives(calls).iter().map(variant).collect::<String>()
    )
}

/// Returns the names of the collective operations among the calls.
pub(crate) fn collectives(calls: &[Call]) -> Vec<&str> {
    let mut bases: Vec<&str> =
        calls.iter().filter(|call| call.class.is_collective()).map(|call| call.base.as_str()).collect();
    bases.dedup();
    bases
}

/// Returns a message's send mode in MPI.
pub(crate) fn mode(base: &str) -> &'static str {
    match base.trim_start_matches('I').trim_end_matches("_init").to_lowercase().as_str() {
        "bsend" => "Buffered",
        "ssend" => "Synchronous",
        "rsend" => "Ready",
        _ => "Standard",
    }
}
