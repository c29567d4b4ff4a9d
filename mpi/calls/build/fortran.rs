//! Fortran calls in Rust: each converts its arguments, and is made in C.

use std::fmt::Write;

use counterfoil_mpi_calls::{Argument, Call, Class, Kind};

use super::arguments::ident;

/// Bindings of an MPI that don't come in C by themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bindings {
    /// `mpif.h` and `use mpi` share their functions, `use mpi_f08` has others; all call PMPI functions.
    OpenMpi,
    /// Only `use mpi_f08` calls without a buffer call PMPI functions.
    Mpich,
}

impl Bindings {
    /// Returns a call's names.
    fn names(self, call: &Call) -> Vec<String> {
        let name = call.symbol().to_lowercase();
        let has_buffer = call.arguments.iter().any(|argument| matches!(argument.kind, Kind::In | Kind::Out));
        // Its memory is returned, as a `type(c_ptr)`, for which `use mpi` has an additional name.
        let allocates = call.name.starts_with("Win_allocate");
        let kinds: &[&str] = match self {
            Bindings::OpenMpi if allocates => &["", "cptr_", "f08_"],
            Bindings::OpenMpi => &["", "f08_"],
            // The `mpif.h` binding passes the request on in a call for the MPI's own requests only.
            Bindings::Mpich if call.class == Class::RequestGeneralized => &["", "f08_"],
            Bindings::Mpich if has_buffer && !allocates => &[],
            Bindings::Mpich => &["f08_"],
        };
        kinds.iter().map(|kind| format!("{name}_{kind}")).collect()
    }
}

/// Renders all calls available in Fortran.
///
/// `pass_on` renders an unconverted call's body, from its name and its parameters.
pub(crate) fn calls(
    calls: &[Call],
    bindings: Bindings,
    pass_on: fn(&Call, &str, &Signature) -> Option<String>,
) -> String {
    let mut text = String::new();
    for call in calls.iter().filter(|call| is_converted(call)) {
        let signature = Signature::new(call);
        // The first does the work, so that its callers are one instruction.
        let mut first: Option<String> = None;
        for name in bindings.names(call) {
            let body = pass_on(call, &name, &signature).unwrap_or_else(|| match &first {
                Some(first) => format!("{first}({})", signature.names.join(", ")),
                None => convert(call),
            });
            write!(
                text,
                "/// `{}` of Fortran.\n///\n/// # Safety\n/// As MPI says of its arguments.\n#[unsafe(no_mangle)]\n\
                 pub unsafe extern \"C-unwind\" fn {name}({}) {{\n    \
                 // SAFETY: the caller's arguments are what MPI asks for.\n    unsafe {{ {body} }}\n}}\n\n",
                call.symbol(),
                signature.parameters(),
            )
            .expect("a string takes everything");
            first.get_or_insert(name);
        }
    }
    text
}

/// Returns `true` for calls available in Fortran, unless the MPI's own binding makes them better.
///
/// The MPI has to know that an error handler's function is written in Fortran.
fn is_converted(call: &Call) -> bool {
    !call.is_large && call.class != Class::HandlerMake
}

/// Parameters of a call in Fortran.
pub(crate) struct Signature {
    pub(crate) names: Vec<String>,
    pub(crate) types: Vec<&'static str>,
}

impl Signature {
    fn new(call: &Call) -> Signature {
        let mut signature = Signature { names: Vec::new(), types: Vec::new() };
        let mut add = |name: &str, of: &'static str| {
            signature.names.push(name.to_owned());
            signature.types.push(of);
        };
        for argument in call.arguments.iter().filter(|argument| !matches!(argument.kind, Kind::Argc | Kind::Argv)) {
            add(ident(&argument.name), parameter(call, argument));
        }
        if call.class == Class::Control {
            return signature;
        }
        add("ierror", "*mut Fint");
        for argument in &call.arguments {
            if matches!(argument.kind, Kind::String | Kind::Strings | Kind::Argvs) {
                add(&format!("{}_len", argument.name), "usize");
            }
        }
        signature
    }

    pub(crate) fn parameters(&self) -> String {
        let parameters = self.names.iter().zip(&self.types).map(|(name, of)| format!("{name}: {of}"));
        parameters.collect::<Vec<_>>().join(", ")
    }
}

/// Returns a parameter's type.
fn parameter(call: &Call, argument: &Argument) -> &'static str {
    match argument.kind {
        Kind::Out if call.class == Class::RequestGeneralized => "*const ffi::MPI_Aint",
        Kind::In => "*const c_void",
        Kind::Out => "*mut c_void",
        Kind::LargeCount => "*const ffi::MPI_Count",
        Kind::Address | Kind::Addresses => "*const ffi::MPI_Aint",
        Kind::QueryFunction => "fortran::Query",
        Kind::FreeFunction => "fortran::Free",
        Kind::CancelFunction => "fortran::Cancel",
        Kind::String | Kind::Strings | Kind::Argvs => "*const c_char",
        Kind::CommOut
        | Kind::GroupOut
        | Kind::OpOut
        | Kind::TypeOut
        | Kind::RequestOut
        | Kind::Request
        | Kind::Requests
        | Kind::Message
        | Kind::Status
        | Kind::Statuses
        | Kind::Flag
        | Kind::IndexOut
        | Kind::IndicesOut
        | Kind::IntOut
        | Kind::IntsOut
        | Kind::LogicalsOut
        | Kind::WeightsOut
        | Kind::WinOut
        | Kind::FileOut
        | Kind::SessionOut => "*mut Fint",
        _ => "*const Fint",
    }
}

/// Renders a call with its arguments converted.
fn convert(call: &Call) -> String {
    let (mut before, mut after) = (String::new(), String::new());
    let mut given = Vec::new();
    let count = call.named("count").or(call.named("incount")).map_or("count", |count| count.name.as_str());
    for argument in &call.arguments {
        let name = ident(&argument.name);
        // A C variable stored after the call.
        let mut variable = |make: String, store: &str| {
            before.push_str(&format!("let mut {name} = {make};\n        "));
            after.push_str(&format!("{name}.{store};\n        "));
            format!("{name}.at()")
        };
        let handle = |of: &str| format!("fortran::Handle::new({name}, fortran::{of}, fortran::{of}_number)");
        let expression = match argument.kind {
            Kind::Argc | Kind::Argv => "std::ptr::null_mut()".to_owned(),
            Kind::Out if call.class == Class::RequestGeneralized => {
                "fortran::Generalized::begin(query, free, cancel, state)".to_owned()
            }
            Kind::QueryFunction => "Some(fortran::query)".to_owned(),
            Kind::FreeFunction => "Some(fortran::free)".to_owned(),
            Kind::CancelFunction => "Some(fortran::cancel)".to_owned(),
            Kind::In | Kind::Out => format!("fortran::buffer({name})"),
            Kind::Type => format!("fortran::datatype(*{name})"),
            Kind::Op => format!("fortran::op(*{name})"),
            Kind::Comm => format!("fortran::comm(*{name})"),
            Kind::Group => format!("fortran::group(*{name})"),
            Kind::Info => format!("fortran::info(*{name})"),
            Kind::Errhandler => format!("fortran::errhandler(*{name})"),
            Kind::RequestIn => format!("fortran::request(*{name})"),
            Kind::Types => {
                let side = if name.starts_with("send") { "sends" } else { "receives" };
                if !before.contains("let (sends, receives)") {
                    let of = if call.class == Class::Neighbours { "neighbours" } else { "parts" };
                    before.push_str(&format!(
                        "let (sends, receives) = fortran::{of}(fortran::comm(*comm)).unwrap_or_default();\n        "
                    ));
                }
                // A rank sending in place gives no list for the send side.
                let count =
                    if side == "sends" { "if fortran::is_in_place(sendbuf) { 0 } else { sends }" } else { side };
                format!("fortran::datatypes({name}, {count})")
            }
            Kind::Weights | Kind::WeightsOut => format!("fortran::weights({name})"),
            Kind::Ranges => format!("{name}.cast_mut().cast()"),
            Kind::String => {
                before.push_str(&format!("let {name} = fortran::string({name}, {name}_len);\n        "));
                format!("{name}.as_ptr()")
            }
            // Set again when the request is complete.
            Kind::CommOut if call.class == Class::CommMakeImmediate => {
                before.push_str(&format!("let kept = fortran::keep(fortran::comm(*{name}));\n        "));
                after.push_str(&format!("if code == 0 {{ *{name} = fortran::comm_number(*kept); }}\n        "));
                "kept".to_owned()
            }
            Kind::CommOut => variable(handle("comm"), "store()"),
            Kind::GroupOut => variable(handle("group"), "store()"),
            Kind::OpOut => variable(handle("op"), "store()"),
            Kind::TypeOut => variable(handle("datatype"), "store()"),
            Kind::RequestOut => variable(
                format!("fortran::Handle::made({name}, ffi::RSMPI_REQUEST_NULL, fortran::request_number)"),
                "store_made(code)",
            ),
            Kind::Request => variable(handle("request"), "store()"),
            Kind::Message => variable(handle("message"), "store()"),
            Kind::SessionOut => variable(handle("session"), "store()"),
            Kind::Requests => variable(
                format!("fortran::Requests::new({name}, *{count}, fortran::request, fortran::request_number)"),
                "store()",
            ),
            Kind::Status => variable(format!("fortran::Statuses::one({name})"), "store()"),
            Kind::Statuses => variable(format!("fortran::Statuses::several({name}, *{count})"), "store()"),
            Kind::Flag => variable(format!("fortran::Number::new({name})"), "store_flag()"),
            Kind::IndexOut => variable(format!("fortran::Number::new({name})"), "store_index()"),
            Kind::IntOut if call.argument(Kind::IndicesOut).is_some() => {
                variable(format!("fortran::Number::new({name})"), "store_count(indices)")
            }
            Kind::LogicalsOut => {
                after.push_str(&format!("fortran::store_flags({name}, *maxdims, code);\n        "));
                name.to_owned()
            }
            Kind::Count
            | Kind::LargeCount
            | Kind::Address
            | Kind::Dest
            | Kind::Source
            | Kind::Root
            | Kind::Tag
            | Kind::Int => format!("*{name}"),
            _ => name.to_owned(),
        };
        given.push(expression);
    }
    let made = format!("{}({})", call.symbol(), given.join(", "));
    if call.class == Class::Control {
        return format!("{made};");
    }
    format!("{before}let code = {made};\n        {after}fortran::end(ierror, code);")
}
