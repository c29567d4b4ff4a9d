//! The exported functions as Rust.

use counterfoil_mpi_calls::{Argument, Call, Class, Kind};

use super::fortran::{self, Bindings, Signature};

use super::arguments::{collective, either, ident, incoming, mode, names, operations, outgoing, parameters};

/// Renders everything generated from the table.
pub(crate) fn library(calls: &[Call], bindings: Bindings) -> String {
    let mut text = String::from("// Made from the table of calls.\n\n");
    for call in calls.iter().filter(|call| call.class != Class::Answered) {
        text.push_str(&export(call));
    }
    let refuse = |call: &Call, _: &str, _: &Signature| {
        is_refused(call).then(|| format!("fortran::end(ierror, front::refuse(\"{}\"))", call.symbol()))
    };
    text.push_str(&fortran::calls(calls, bindings, refuse));
    text.push_str(&operations(calls));
    text
}

fn export(call: &Call) -> String {
    let (symbol, parameters) = (call.symbol(), parameters(call));
    let comm = call.argument(Kind::Comm).map_or("None".to_owned(), |comm| format!("Some({})", comm.name));
    format!(
        "/// `{}`\n///\n/// # Safety\n/// As MPI says of its arguments.\n#[unsafe(no_mangle)]\n\
         pub unsafe extern \"C-unwind\" fn {symbol}({parameters}) -> c_int {{\n    \
         // SAFETY: the caller's arguments are what MPI asks for.\n    \
         unsafe {{ {} }}\n}}\n\n",
        call.prototype(),
        match call.class {
            Class::Init | Class::InitThread | Class::Finalize | Class::Abort => {
                format!("process::{}({})", call.class.name(), names(call))
            }
            Class::Control => "0".to_owned(),
            _ if is_refused(call) => format!("front::refuse(\"{symbol}\")"),
            _ => format!("enter(\"{symbol}\", {comm}, |front| {{ {}{} }})", checks(call), body(call)),
        }
    )
}

/// Renders checks for pointers that MPI refuses if null.
fn checks(call: &Call) -> String {
    let count = call.named("count").or(call.named("incount")).map_or("1", |count| count.name.as_str());
    let check = |argument: &Argument| match argument.kind {
        Kind::RequestOut
        | Kind::Request
        | Kind::Flag
        | Kind::IndexOut
        | Kind::CommOut
        | Kind::Message
        | Kind::TypeOut => {
            format!("check({}, 1)?; ", ident(&argument.name))
        }
        Kind::Requests | Kind::IndicesOut => format!("check({}, {count})?; ", argument.name),
        _ => String::new(),
    };
    call.arguments.iter().map(check).collect()
}

/// Renders the call to its handling function.
fn body(call: &Call) -> String {
    let class = call.class;
    if class.is_collective() {
        let op = call.argument(Kind::Op).map_or("None".to_owned(), |op| format!("Some({})", op.name));
        let (collective, wrapper) = (collective(call, &format!("op: {op}")), call.wrapper());
        let request = call.argument(Kind::RequestOut).map_or(String::new(), |request| format!(", {}", request.name));
        return format!("collective::{wrapper}(front, &{collective}{request})");
    }
    let mut given = vec!["front".to_owned()];
    match class {
        Class::CommMake | Class::CommCreate | Class::CommMakeImmediate | Class::CommDrop | Class::CommName => {
            given.extend(call.arguments.iter().map(|argument| ident(&argument.name).to_owned()));
            return format!("comms::{}({})", call.name.to_lowercase(), given.join(", "));
        }
        Class::HandlerMake | Class::TypeDrop => {
            return format!("Failure::check(ffi::P{}({}))", call.symbol(), names(call));
        }
        Class::RequestGeneralized => {
            return format!("requests::{}(front, {})", call.name.to_lowercase(), names(call));
        }
        _ => {}
    }
    if call.argument(Kind::Dest).is_some() {
        given.push(format!("&{}", outgoing(call)));
        given.push(format!("Mode::{}", mode(&call.base)));
    }
    if call.argument(Kind::Source).is_some() {
        given.push(format!("&{}", incoming(call)));
    }
    if matches!(class, Class::ReceiveMatched | Class::ReceiveMatchedImmediate) {
        given.push(format!(
            "Memory {{ at: {}.cast(), count: i64::from({}), datatype: {} }}",
            either(call, "recvbuf", "buf"),
            either(call, "recvcount", "count"),
            either(call, "recvtype", "type"),
        ));
    }
    given.extend(call.taken().map(|argument| ident(&argument.name).to_owned()));
    format!("calls::{}({})", class.name(), given.join(", "))
}

/// Returns `true` for a call unsupported by a recovering rank.
fn is_refused(call: &Call) -> bool {
    matches!(call.class, Class::NotLogged | Class::SessionInit | Class::CommRevoke) || call.is_extension()
}
