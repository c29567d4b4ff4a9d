//! The wrappers in Rust.

use std::fmt::Write;

use counterfoil_mpi_calls::{Call, Class, Kind};

use super::fortran::{self, Bindings, Signature};

use super::arguments::{
    camel, collective, collectives, either, ident, incoming, mode, names, operations, outgoing, parameters,
};

/// Renders everything made from the table.
pub(crate) fn library(calls: &[Call], bindings: Bindings) -> String {
    let mut text = String::from("// Made from the table of calls.\n\n");
    text.push_str(&next(calls));
    for call in calls {
        text.push_str(&wrapper(call));
    }
    text.push_str(&fortran::calls(calls, bindings, pass_on));
    text.push_str(&operations(calls));
    let bases = collectives(calls);
    let names: String =
        bases.iter().map(|base| format!("            Operation::{} => \"{base}\",\n", camel(base))).collect();
    let all: String = bases.iter().map(|base| format!("        Operation::{},\n", camel(base))).collect();
    write!(
        text,
        "\nimpl Operation {{\n    /// All of them.\n    pub(crate) const ALL: &[Operation] = &[\n{all}    ];\n\n    \
         /// Its name without `MPI_`.\n    pub(crate) fn name(self) -> &'static str {{\n        \
         match self {{\n{names}        }}\n    }}\n}}\n"
    )
    .expect("a string takes everything");
    text
}

/// Renders the next library's functions, which calls are passed on to.
fn next(calls: &[Call]) -> String {
    let mut text = String::from("/// The calls as the next library has them: another tool, or the MPI itself.\n");
    text.push_str("pub(crate) mod next {\n    use super::*;\n\n");
    for call in calls {
        let (name, symbol, signature) = (&call.name, call.symbol(), signature(call, "C-unwind"));
        let (parameters, names) = (parameters(call), names(call));
        write!(
            text,
            "    pub(crate) static {name}: Symbol<{signature}> = {{\n        \
             unsafe extern \"C-unwind\" fn first({parameters}) -> c_int {{\n            \
             // SAFETY: the caller's arguments, unchanged.\n            \
             unsafe {{ ({name}.look_up())({names}) }}\n        \
             }}\n        \
             Symbol::new(first, c\"{symbol}\", c\"P{symbol}\")\n    \
             }};\n"
        )
        .expect("a string takes everything");
    }
    text.push_str("}\n\n");
    text
}

/// Returns a call's type.
///
/// A program's error handler may unwind out of one: the bindings don't say so.
fn signature(call: &Call, abi: &str) -> String {
    let types: Vec<&str> = call.arguments.iter().map(|argument| argument.kind.rust(call.is_large)).collect();
    format!("unsafe extern \"{abi}\" fn({}) -> c_int", types.join(", "))
}

fn wrapper(call: &Call) -> String {
    let (symbol, parameters) = (call.symbol(), parameters(call));
    let with =
        call.arguments.iter().find(|argument| matches!(argument.kind, Kind::Status | Kind::Statuses | Kind::Handler));
    let with = with.map_or("", |argument| argument.name.as_str());
    let next = format!("(next::{}.get())({})", call.name, names(call));
    let check = if call.class == Class::Control {
        // Its prototype is variadic: nothing after the first argument is examined.
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
         // SAFETY: the caller's arguments, unchanged, are what MPI asks for, and the wrapper asks for\n    \
         // nothing more; a status that the caller doesn't want may be one of the wrapper's.\n    \
         unsafe {{\n        {}\n    }}\n}}\n\n",
        call.prototype(),
        parameters,
        match call.class {
            Class::Send => send(call, &next),
            Class::Receive => receive(call, &next),
            Class::Test => test(call, "", "request", &next),
            Class::TestAny => test(call, "count == 1 && ", "requests", &next),
            _ => marked(call, &body(call, &format!("move |{with}| {next}"))),
        }
    )
}

/// Renders an unlogged Fortran call: it goes to the MPI's own binding.
fn pass_on(call: &Call, name: &str, signature: &Signature) -> Option<String> {
    let Signature { names, types } = signature;
    let (parameters, names, types) = (signature.parameters(), names.join(", "), types.join(", "));
    (call.class == Class::NotLogged).then(|| {
        format!(
            "\n        static NEXT: Symbol<unsafe extern \"C-unwind\" fn({types})> = {{\n            \
             unsafe extern \"C-unwind\" fn first({parameters}) {{\n                \
             // SAFETY: the caller's arguments, unchanged.\n                \
             unsafe {{ (NEXT.look_up())({names}) }}\n            \
             }}\n            \
             Symbol::new(first, c\"{name}\", c\"p{name}\")\n        \
             }};\n        \
             let call = || {{\n            \
             (NEXT.get())({names});\n            \
             0\n        \
             }};\n        \
             wrap::not_logged(\"{}\", call);\n    ",
            call.symbol()
        )
    })
}

/// Renders a call whose errors are noted for its end.
///
/// An error before there is a communicator is for the handler given to the call.
fn marked(call: &Call, body: &str) -> String {
    let begin =
        call.argument(Kind::Errhandler).map_or("begin()".to_owned(), |given| format!("begin_with({})", given.name));
    format!("let call = handlers::{begin};\n        handlers::end(call, {body})")
}

/// Renders a blocking send.
///
/// Work before the call delays the message, so it is done afterwards wherever the message may be sent or begun first.
/// Nothing of the library's is live when one is sent, so its error needn't be noted.
fn send(call: &Call, next: &str) -> String {
    let (mode, out) = (mode(&call.base), outgoing(call));
    // Only standard-mode messages are begun first; MPI_Isend takes no large count.
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
        marked(call, &format!("wrap::send(&{out}, Mode::{mode}, move || {next})"))
    )
}

/// Renders a blocking receive.
///
/// Stores before the call follow the last message sent, whose answer this may be.
fn receive(call: &Call, next: &str) -> String {
    format!(
        "if wrap::can_defer() {{\n            \
         wrap::receive_deferred((comm, source, {}), status, move |status| {next})\n        \
         }} else {{\n            \
         {}\n        }}",
        either(call, "recvtag", "tag"),
        marked(call, &body(call, &format!("move |status| {next}")))
    )
}

/// Renders a test, which programs call in loops.
///
/// `condition` holds for a single request, at `request`.
fn test(call: &Call, condition: &str, request: &str, next: &str) -> String {
    format!(
        "if {condition}wrap::is_polled_directly({request}) {{\n            \
         wrap::poll_directly({request}, flag, status, move |status| {next})\n        \
         }} else {{\n            \
         wrap::apart(move || {{\n        {}\n        }})\n        }}",
        marked(call, &body(call, &format!("move |status| {next}")))
    )
}

/// Renders the call of the handling function.
fn body(call: &Call, real: &str) -> String {
    let mut given = Vec::new();
    if call.class.is_collective() {
        given.push(format!("&{}", collective(call, &format!("class: Class::{:?}", call.class))));
    } else {
        given.extend(call.argument(Kind::Dest).map(|_| format!("&{}", outgoing(call))));
        given.extend(call.argument(Kind::Source).map(|_| format!("&{}", incoming(call))));
    }
    if call.class == Class::NotLogged {
        given.push(format!("\"{}\"", call.symbol()));
    }
    given.extend(call.taken().map(|argument| ident(&argument.name).to_owned()));
    given.push(real.to_owned());
    format!("wrap::{}({})", call.wrapper(), given.join(", "))
}
