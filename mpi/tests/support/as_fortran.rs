//! A header for C programs to call MPI like Fortran compilers do: by the functions of `mpif.h` and `mpi_f08` in turn,
//! and some calls in C.
//!
//! Of the library's code, it includes only the call table. Variables set by a call hold no handle before, statuses are
//! aligned to 4 bytes only, arrays are gone after the call, and strings end with blanks.

use std::fmt::Write;
use std::path::Path;
use std::process::Command;

use counterfoil_mpi_calls::{Argument, Call, Class, Kind};

/// Writes a header with the calls a library `knows` into a folder, and returns the compiler options to use it.
///
/// The functions are looked up at run time in the library under test, loaded first; a missing one ends the program.
pub(crate) fn options(folder: &Path, knows: fn(&Call) -> bool) -> Vec<String> {
    let [header_path, missing_path, library] =
        ["as_fortran.h", "missing.c", "libas_fortran.so"].map(|name| folder.join(name));
    let calls = counterfoil_mpi_calls::table().unwrap().into_iter();
    let calls: Vec<Call> = calls.filter(|call| knows(call) && is_made_in_fortran(call)).collect();
    std::fs::write(&header_path, header(&calls)).unwrap();
    std::fs::write(&missing_path, missing(&calls)).unwrap();
    let compiled =
        Command::new("cc").args(["-w", "-shared", "-fPIC", "-o"]).arg(&library).arg(&missing_path).status().unwrap();
    assert!(compiled.success());
    let run_path = format!("-Wl,-rpath,{}", folder.display());
    // The library comes before its users.
    ["-include", header_path.to_str().unwrap(), "-Wl,--no-as-needed", library.to_str().unwrap(), &run_path]
        .map(str::to_owned)
        .into()
}

/// Renders functions for the calls; they report themselves missing.
fn missing(calls: &[Call]) -> String {
    let mut text = String::from("#include <stdio.h>\n#include <stdlib.h>\n");
    for call in calls {
        let name = call.symbol().to_lowercase();
        for name in [format!("{name}_"), format!("{name}_f08_")] {
            writeln!(text, "void {name}(void) {{ fprintf(stderr, \"{name} is missing\\n\"); abort(); }}").unwrap();
        }
    }
    text
}

fn is_made_in_fortran(call: &Call) -> bool {
    use Class::*;
    !call.is_large
        && !call.is_extension()
        && !matches!(call.class, HandlerMake | RequestGeneralized | SessionInit | NotLogged)
}

/// Returns the name of the handle that a call may change, in the names of its conversions.
fn handle_changed(kind: Kind) -> Option<&'static str> {
    Some(match kind {
        Kind::CommOut => "Comm",
        Kind::GroupOut => "Group",
        Kind::OpOut => "Op",
        Kind::TypeOut => "Type",
        Kind::Message => "Message",
        Kind::RequestOut | Kind::Request => "Request",
        _ => return None,
    })
}

fn header(calls: &[Call]) -> String {
    let mut text = String::from(BEGIN);
    for call in calls {
        // Older MPIs have fewer calls.
        let guard = if is_recent(call) { "#if MPI_VERSION >= 4 || defined HAVE_MPI_4\n" } else { "" };
        let end = if guard.is_empty() { "" } else { "#endif\n" };
        text.push_str(&format!("{guard}{}{end}\n", function(call)));
    }
    for call in calls.iter().filter(|call| call.class != Class::Control) {
        writeln!(text, "#define {0} fortran_{0}", call.symbol()).unwrap();
    }
    text.push_str("#endif\n");
    text
}

fn is_recent(call: &Call) -> bool {
    let name = call.name.as_str();
    name.ends_with("_init") && call.class.is_collective()
        || ["Psend", "Precv", "Pready", "Parrived", "Isendrecv", "Comm_idup_with_info"]
            .iter()
            .any(|new| name.starts_with(new))
        || name.ends_with("from_group")
        || name.ends_with("from_groups")
}

const BEGIN: &str = r#"#if !defined AS_FORTRAN_H && !defined __cplusplus
#define AS_FORTRAN_H
#include <mpi.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* Way of the next call: mpif.h, mpi_f08, C. */
static _Thread_local unsigned fortran_turn __attribute__((unused));
/* No handle. */
enum { FORTRAN_UNSET = -7 };

#ifdef OPEN_MPI
#define FORTRAN_HAS(has_buffer) (fortran_turn++ % 5 != 4)
#define FORTRAN_CALL(f77, f08, ...) do { if (fortran_turn & 1) f77 __VA_ARGS__; else f08 __VA_ARGS__; } while (0)
__attribute__((weak)) MPI_Fint mpi_fortran_bottom_, mpi_fortran_in_place_, mpi_fortran_unweighted_,
    mpi_fortran_weights_empty_, mpi_fortran_status_ignore_[8], mpi_fortran_statuses_ignore_[8];
#define FORTRAN_STATUS_IGNORE mpi_fortran_status_ignore_
#define FORTRAN_STATUSES_IGNORE mpi_fortran_statuses_ignore_
#define FORTRAN_UNWEIGHTED &mpi_fortran_unweighted_
#define FORTRAN_WEIGHTS_EMPTY &mpi_fortran_weights_empty_
static inline void *fortran_buffer(const void *buf) {
    return buf == MPI_BOTTOM ? (void *)&mpi_fortran_bottom_ : buf == MPI_IN_PLACE ? (void *)&mpi_fortran_in_place_ : (void *)buf;
}
#else
/* MPICH: calls with a buffer come in C. */
#define FORTRAN_HAS(has_buffer) (!(has_buffer) && fortran_turn++ % 5 != 4)
#define FORTRAN_CALL(f77, f08, ...) f08 __VA_ARGS__
__attribute__((weak)) MPI_Fint __mpi_f08_link_constants_MOD_mpi_unweighted, __mpi_f08_link_constants_MOD_mpi_weights_empty;
/* Other names in C: mpi.h declares these where the MPI has Fortran bindings. */
__attribute__((weak)) MPI_Fint fortran_status_ignore[8] __asm__("MPIR_F08_MPI_STATUS_IGNORE_OBJ");
__attribute__((weak)) MPI_Fint fortran_statuses_ignore[8] __asm__("MPIR_F08_MPI_STATUSES_IGNORE_OBJ");
#define FORTRAN_STATUS_IGNORE fortran_status_ignore
#define FORTRAN_STATUSES_IGNORE fortran_statuses_ignore
#define FORTRAN_UNWEIGHTED &__mpi_f08_link_constants_MOD_mpi_unweighted
#define FORTRAN_WEIGHTS_EMPTY &__mpi_f08_link_constants_MOD_mpi_weights_empty
static inline void *fortran_buffer(const void *buf) { return (void *)buf; }
#endif

static inline MPI_Fint *fortran_weights(const int *weights) {
    return weights == MPI_UNWEIGHTED ? FORTRAN_UNWEIGHTED : weights == MPI_WEIGHTS_EMPTY ? FORTRAN_WEIGHTS_EMPTY : (MPI_Fint *)weights;
}

/* Number of parts of an operation with a datatype for each. */
static inline int fortran_parts(MPI_Comm comm, int of_neighbours, int sends) {
    int count = 0, other = 0, flag = 0;
    if (!of_neighbours) {
        MPI_Comm_test_inter(comm, &flag);
        if (flag) MPI_Comm_remote_size(comm, &count); else MPI_Comm_size(comm, &count);
        return count;
    }
    MPI_Topo_test(comm, &flag);
    if (flag == MPI_CART) {
        MPI_Cartdim_get(comm, &count);
        return 2 * count;
    }
    if (flag == MPI_GRAPH) {
        MPI_Comm_rank(comm, &other);
        MPI_Graph_neighbors_count(comm, other, &count);
        return count;
    }
    if (flag == MPI_DIST_GRAPH) {
        int weighted;
        MPI_Dist_graph_neighbors_count(comm, &other, &count, &weighted);
    }
    return sends ? count : other;
}

static inline MPI_Fint *fortran_types(const MPI_Datatype *types, int count) {
    if (!types) return NULL;
    MPI_Fint *numbers = malloc((count + 1) * sizeof *numbers);
    for (int i = 0; i < count; i++) numbers[i] = MPI_Type_c2f(types[i]);
    return numbers;
}

static inline void fortran_forget(MPI_Fint *numbers, int count) {
    for (int i = 0; numbers && i < count; i++) numbers[i] = FORTRAN_UNSET;
    free(numbers);
}

"#;

/// Renders a call's function.
fn function(call: &Call) -> String {
    let (mut before, mut after) = (String::new(), String::new());
    let (mut given, mut lengths, mut nulls) = (Vec::new(), Vec::new(), Vec::new());
    let count = call.named("count").or(call.named("incount")).map_or("0", |count| count.name.as_str());
    let has_buffer = call.arguments.iter().any(|argument| matches!(argument.kind, Kind::In | Kind::Out));
    for Argument { name, kind } in &call.arguments {
        let handle = |of: &str| format!("MPI_{of}_c2f({name})");
        let mut number = |value: String| {
            before.push_str(&format!("    MPI_Fint f_{name} = {value};\n"));
            format!("&f_{name}")
        };
        let expression = match kind {
            Kind::Argc | Kind::Argv => continue,
            Kind::In | Kind::Out => format!("fortran_buffer({name})"),
            Kind::Type => number(handle("Type")),
            Kind::Op => number(handle("Op")),
            Kind::Comm => number(handle("Comm")),
            Kind::Group => number(handle("Group")),
            Kind::Info => number(handle("Info")),
            Kind::Errhandler => number(handle("Errhandler")),
            Kind::RequestIn => number(handle("Request")),
            kind if let Some(of) = handle_changed(*kind) => {
                nulls.push(name.clone());
                let is_set = matches!(call.class, Class::CommDrop | Class::TypeDrop)
                    || *kind == Kind::Request
                    || ["Group_free", "Op_free"].contains(&&*call.name)
                    || *kind == Kind::Message
                        && matches!(call.class, Class::ReceiveMatched | Class::ReceiveMatchedImmediate);
                let value = if is_set { format!("MPI_{of}_c2f(*{name})") } else { "FORTRAN_UNSET".to_owned() };
                after.push_str(&format!("    if (f_{name} != FORTRAN_UNSET) *{name} = MPI_{of}_f2c(f_{name});\n"));
                number(value)
            }
            Kind::Requests => {
                nulls.push(name.clone());
                before.push_str(&format!(
                    "    MPI_Fint *f_{name} = malloc(({count} > 0 ? {count} : 1) * sizeof *f_{name});\n    \
                     for (int i = 0; i < {count}; i++) f_{name}[i] = MPI_Request_c2f({name}[i]);\n"
                ));
                after.push_str(&format!(
                    "    for (int i = 0; i < {count}; i++) {name}[i] = MPI_Request_f2c(f_{name}[i]);\n    \
                     fortran_forget(f_{name}, {count});\n"
                ));
                format!("f_{name}")
            }
            Kind::Status | Kind::Statuses => {
                let (ignore, count) = if *kind == Kind::Status { ("STATUS", "1") } else { ("STATUSES", count) };
                before.push_str(&format!(
                    "    int has_{name} = {name} != MPI_{ignore}_IGNORE;\n    \
                     size_t n_{name} = has_{name} && {count} > 0 ? {count} : 0;\n    \
                     MPI_Fint *m_{name} = malloc((n_{name} + 1) * sizeof(MPI_Status));\n    \
                     MPI_Fint *f_{name} = has_{name} ? m_{name} + 1 : FORTRAN_{ignore}_IGNORE;\n    \
                     if (n_{name}) memcpy(f_{name}, {name}, n_{name} * sizeof(MPI_Status));\n"
                ));
                after.push_str(&format!(
                    "    if (n_{name}) memcpy({name}, f_{name}, n_{name} * sizeof(MPI_Status));\n    free(m_{name});\n"
                ));
                format!("f_{name}")
            }
            Kind::Flag => {
                nulls.push(name.clone());
                after.push_str(&format!("    if (f_{name} != FORTRAN_UNSET) *{name} = f_{name} != 0;\n"));
                number("FORTRAN_UNSET".to_owned())
            }
            Kind::IndexOut => {
                nulls.push(name.clone());
                after.push_str(&format!(
                    "    if (f_{name} != FORTRAN_UNSET) *{name} = f_{name} == MPI_UNDEFINED ? f_{name} : f_{name} - 1;\n"
                ));
                number("FORTRAN_UNSET".to_owned())
            }
            Kind::IndicesOut => {
                nulls.push(name.clone());
                after.push_str(&format!(
                    "    if (f_outcount != FORTRAN_UNSET && f_outcount != MPI_UNDEFINED)\n        \
                     for (int i = 0; i < f_outcount; i++) {name}[i]--;\n"
                ));
                name.clone()
            }
            Kind::IntOut if call.argument(Kind::IndicesOut).is_some() => {
                nulls.push(name.clone());
                after.push_str(&format!("    if (f_{name} != FORTRAN_UNSET) *{name} = f_{name};\n"));
                number("FORTRAN_UNSET".to_owned())
            }
            Kind::Types => {
                let (of_neighbours, sends) =
                    (i32::from(call.class == Class::Neighbours), i32::from(name.starts_with("send")));
                let parts = format!("fortran_parts(comm, {of_neighbours}, {sends})");
                let array = if sends == 1 { format!("sendbuf == MPI_IN_PLACE ? NULL : {name}") } else { name.clone() };
                before.push_str(&format!(
                    "    int n_{name} = {parts};\n    MPI_Fint *f_{name} = fortran_types({array}, n_{name});\n"
                ));
                after.push_str(&format!("    fortran_forget(f_{name}, n_{name});\n"));
                format!("f_{name}")
            }
            Kind::Weights | Kind::WeightsOut => format!("fortran_weights({name})"),
            Kind::String => {
                before.push_str(&format!(
                    "    size_t n_{name} = strlen({name}) + 3;\n    char *f_{name} = malloc(n_{name});\n    \
                     memset(f_{name}, ' ', n_{name});\n    memcpy(f_{name}, {name}, n_{name} - 3);\n"
                ));
                after.push_str(&format!("    free(f_{name});\n"));
                lengths.push(format!("n_{name}"));
                format!("f_{name}")
            }
            Kind::Count
            | Kind::LargeCount
            | Kind::Address
            | Kind::Dest
            | Kind::Source
            | Kind::Root
            | Kind::Tag
            | Kind::Int => format!("&{name}"),
            _ => name.clone(),
        };
        given.push(expression);
    }
    let symbol = call.symbol();
    let lower = symbol.to_lowercase();
    let in_c: Vec<&str> = call.arguments.iter().map(|argument| argument.name.as_str()).collect();
    let is_null: String = nulls.iter().map(|name| format!(" || !{name}")).collect();
    given.push("&ierror".to_owned());
    given.extend(lengths);
    format!(
        "void {lower}_();\nvoid {lower}_f08_();\n\
         __attribute__((unused)) static {} {{\n    \
         if (!FORTRAN_HAS({}){is_null}) return {symbol}({});\n    \
         MPI_Fint ierror = -1;\n{before}    \
         FORTRAN_CALL({lower}_, {lower}_f08_, ({}));\n{after}    return ierror;\n}}\n",
        call.prototype().replacen("MPI_", "fortran_MPI_", 1),
        i32::from(has_buffer),
        in_c.join(", "),
        given.join(", "),
    )
}
