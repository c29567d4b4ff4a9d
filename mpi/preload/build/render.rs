//! The wrappers as Rust.

use std::fmt::Write;

use counterfoil_mpi_calls::{Argument, Call, Class, Form, Kind};

/// Everything that is made of the table.
pub(crate) fn library(calls: &[Call]) -> String {
    let mut text = String::from("// Made from the table of calls.\n\n");
    text.push_str(&next(calls));
    for call in calls {
        text.push_str(&wrapper(call));
    }
    let collectives = calls.iter().filter(|call| call.class.is_collective());
    let mut bases: Vec<&str> = collectives.map(|call| call.base.as_str()).collect();
    bases.dedup();
    let variants: String =
        bases.iter().map(|base| format!("    #[doc = \"`MPI_{base}`.\"]\n    {},\n", camel(base))).collect();
    let names: String =
        bases.iter().map(|base| format!("            Operation::{} => \"{base}\",\n", camel(base))).collect();
    let all: String = bases.iter().map(|base| format!("        Operation::{},\n", camel(base))).collect();
    write!(
        text,
        "/// The collective operations.\n\
         #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]\n\
         pub(crate) enum Operation {{\n{variants}}}\n\n\
         impl Operation {{\n    /// All of them.\n    pub(crate) const ALL: &[Operation] = &[\n{all}    ];\n\n    \
         /// Its name without `MPI_`.\n    pub(crate) fn name(self) -> &'static str {{\n        match self {{\n{names}        }}\n    }}\n}}\n"
    )
    .expect("a string takes everything");
    text
}

/// The table of where each call goes next.
fn next(calls: &[Call]) -> String {
    let mut text = String::from("/// The calls as the next library has them: another tool, or the MPI itself.\n");
    text.push_str("pub(crate) mod next {\n    use super::*;\n\n");
    for call in calls {
        let (name, symbol, signature) = (&call.name, call.symbol(), signature(call, "C-unwind"));
        let (parameters, names) = (parameters(call), names(call));
        write!(
            text,
            "    pub(crate) static {name}: Next<{signature}> = {{\n        \
             unsafe extern \"C-unwind\" fn first({parameters}) -> c_int {{\n            \
             // SAFETY: the caller's arguments, unchanged.\n            \
             unsafe {{ ({name}.look_up())({names}) }}\n        \
             }}\n        \
             Next::new(first, c\"{symbol}\", c\"P{symbol}\")\n    \
             }};\n"
        )
        .expect("a string takes everything");
    }
    text.push_str("}\n\n");
    text
}

/// The type of a call. An error handler of the program may unwind out of one: the bindings don't say so.
fn signature(call: &Call, abi: &str) -> String {
    let types: Vec<&str> = call.arguments.iter().map(|argument| argument.kind.rust(call.is_large)).collect();
    format!("unsafe extern \"{abi}\" fn({}) -> c_int", types.join(", "))
}

/// `type` is a word of Rust's.
fn ident(name: &str) -> &str {
    if name == "type" { "datatype" } else { name }
}

/// The parameters of a call, with their types.
fn parameters(call: &Call) -> String {
    let parameter = |argument: &Argument| format!("{}: {}", ident(&argument.name), argument.kind.rust(call.is_large));
    call.arguments.iter().map(parameter).collect::<Vec<_>>().join(", ")
}

/// The names of its arguments.
fn names(call: &Call) -> String {
    call.arguments.iter().map(|argument| ident(&argument.name)).collect::<Vec<_>>().join(", ")
}

fn wrapper(call: &Call) -> String {
    let (symbol, parameters) = (call.symbol(), parameters(call));
    let with =
        call.arguments.iter().find(|argument| matches!(argument.kind, Kind::Status | Kind::Statuses | Kind::Handler));
    let with = with.map_or("", |argument| argument.name.as_str());
    let next = format!("(next::{}.get())({})", call.name, names(call));
    let check = if call.class == Class::Control {
        // Its prototype is variadic: nothing after the first argument is looked at.
        String::new()
    } else if call.is_extension() {
        // The C compiler compares it.
        String::new()
    } else {
        format!("const _: {} = ffi::{symbol};\n", signature(call, "C"))
    };
    format!(
        "{check}\n/// `{}`\n///\n/// # Safety\n/// As MPI says of its arguments.\n#[unsafe(no_mangle)]\n\
         pub unsafe extern \"C-unwind\" fn {symbol}({}) -> c_int {{\n    \
         // SAFETY: the caller's arguments, unchanged, are what MPI asks for, and the wrapper asks for nothing more; a status that the\n    \
         // caller doesn't want may be one of the wrapper's.\n    \
         unsafe {{\n        {}\n    }}\n}}\n\n",
        call.prototype(),
        parameters,
        match call.class {
            Class::Send => send(call, &next),
            Class::Receive => receive(call, &next),
            Class::Test => test(call, "", "request", &next),
            Class::TestAny => test(call, "count == 1 && ", "requests", &next),
            _ => marked(&body(call, &format!("move |{with}| {next}"))),
        }
    )
}

/// Renders a call whose errors are noted for its end.
fn marked(body: &str) -> String {
    format!("let call = handlers::begin();\n        handlers::end(call, {body})")
}

/// Renders a blocking send. Work before the call delays the message, so it is done after it wherever the message may be sent or begun first.
/// Nothing of the library's is live when one is sent, so that its error needn't be noted.
fn send(call: &Call, next: &str) -> String {
    let (mode, out) = (mode(&call.base), outgoing(call));
    // Only messages of the standard mode are begun first; MPI_Isend takes no large count.
    let begun = if mode == "Standard" && !call.is_large {
        let begin = "move |request| (next::Isend.get())(buf, count, datatype, dest, tag, comm, request)";
        format!(
            "else if wrap::is_begun_first(dest) {{\n            \
             wrap::send_begun({out}, {begin})\n        }} "
        )
    } else {
        String::new()
    };
    format!(
        "if wrap::is_sent_first(Mode::{mode}, i64::from(count), datatype) {{\n            \
         wrap::log_after_send({next}, {out})\n        \
         }} {begun}else {{\n            \
         {}\n        }}",
        marked(&format!("wrap::send(&{out}, Mode::{mode}, move || {next})"))
    )
}

/// Renders a blocking receive. What is stored before the call is stored after the last message sent, whose answer this may be.
fn receive(call: &Call, next: &str) -> String {
    format!(
        "if wrap::can_defer() {{\n            \
         wrap::receive_deferred((comm, source, {}), status, move |status| {next})\n        \
         }} else {{\n            \
         {}\n        }}",
        either(call, "recvtag", "tag"),
        marked(&body(call, &format!("move |status| {next}")))
    )
}

/// Renders a test, which programs call in loops. `condition` says that it is of one request, which is at `request`.
fn test(call: &Call, condition: &str, request: &str, next: &str) -> String {
    format!(
        "if {condition}wrap::is_polled_directly({request}) {{\n            \
         wrap::poll_directly({request}, flag, status, move |status| {next})\n        \
         }} else {{\n            \
         wrap::apart(move || {{\n        {}\n        }})\n        }}",
        marked(&body(call, &format!("move |status| {next}")))
    )
}

/// The call of what the class does.
fn body(call: &Call, real: &str) -> String {
    let mut given = Vec::new();
    let mut class = call.class.name().to_owned();
    if call.class.is_collective() {
        given.push(format!("&{}", collective(call)));
        class = match call.form {
            Form::Plain => "collective",
            Form::Immediate => "collective_immediate",
            Form::Persistent => "collective_persistent",
        }
        .to_owned();
        given.extend(call.argument(Kind::RequestOut).map(|request| request.name.clone()));
    } else {
        if call.argument(Kind::Dest).is_some() {
            given.push(format!("&{}", outgoing(call)));
        }
        if call.argument(Kind::Source).is_some() {
            given.push(format!("&{}", incoming(call)));
        }
        if call.class == Class::NotLogged {
            given.push(format!("\"{}\"", call.symbol()));
        } else {
            given.extend(
                call.arguments
                    .iter()
                    .filter(|argument| is_given(call, argument))
                    .map(|argument| ident(&argument.name).to_owned()),
            );
        }
    }
    given.push(real.to_owned());
    let name = if class == "match" { "match_message" } else { &class };
    format!("wrap::{name}({})", given.join(", "))
}

/// Whether a class is given this argument as it is.
fn is_given(call: &Call, argument: &Argument) -> bool {
    match argument.kind {
        kind if call.class == Class::CommMake => kind == Kind::CommOut,
        // What of these there is, is in the message's description.
        Kind::Dest | Kind::Source | Kind::In | Kind::Out | Kind::Count | Kind::LargeCount | Kind::Type => false,
        Kind::Tag | Kind::Comm => call.argument(Kind::Dest).or(call.argument(Kind::Source)).is_none(),
        Kind::Info | Kind::Errhandler | Kind::Argc | Kind::Argv => false,
        Kind::QueryFunction | Kind::FreeFunction | Kind::CancelFunction => false,
        Kind::Int | Kind::Ints => call.class != Class::InitThread,
        _ => true,
    }
}

/// In which of MPI's ways a message is sent.
fn mode(base: &str) -> &'static str {
    match base {
        "Bsend" => "Buffered",
        "Ssend" => "Synchronous",
        "Rsend" => "Ready",
        _ => "Standard",
    }
}

/// One of two names of an argument.
fn either<'a>(call: &'a Call, one: &'a str, other: &'a str) -> &'a str {
    ident(if call.named(one).is_some() { one } else { other })
}

fn outgoing(call: &Call) -> String {
    let partitions = if call.named("partitions").is_some() { "i64::from(partitions)" } else { "1" };
    format!(
        "Outgoing {{ buf: {}.cast(), count: i64::from({}) * {partitions}, datatype: {}, dest, tag: {}, comm }}",
        either(call, "sendbuf", "buf"),
        either(call, "sendcount", "count"),
        either(call, "sendtype", "type"),
        either(call, "sendtag", "tag"),
    )
}

fn incoming(call: &Call) -> String {
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

fn collective(call: &Call) -> String {
    let option = |kind| call.argument(kind).map_or("None".to_owned(), |argument| format!("Some({})", argument.name));
    format!(
        "Collective {{ operation: Operation::{}, class: Class::{:?}, comm, root: {}, send: {}, receive: {} }}",
        camel(&call.base),
        call.class,
        option(Kind::Root),
        side(call, "send"),
        side(call, "recv")
    )
}

/// What a rank gives or gets: `None` where the operation has no memory.
fn side(call: &Call, of: &str) -> String {
    let name = |what: &str| format!("{of}{what}");
    let find = |names: &[String]| names.iter().find_map(|name| call.named(name)).cloned();
    let Some(buf) = find(&[name("buf"), "buf".to_owned()]) else { return "None".to_owned() };
    let counts =
        find(&[name("counts"), name("count"), "count".to_owned(), "recvcounts".to_owned(), "recvcount".to_owned()]);
    let types = find(&[name("types"), name("type"), "type".to_owned()]);
    let letter = &of[..1];
    let displs = find(&[format!("{letter}displs")]).or_else(|| {
        // Of the operations with one array of displacements, it belongs to the side with several counts.
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

/// `Reduce_scatter_block` as a name of Rust's.
fn camel(name: &str) -> String {
    name.split('_').map(|part| part[..1].to_uppercase() + &part[1..]).collect()
}
