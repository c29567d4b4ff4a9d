//! Small rules, one for each part of the protocols' interface that the published rules use differently or not at all. Each adds to the plain
//! rule, as a paper's rule would, and is no use to a program: it shows that a driver does what the interface says.
//!
//! | rule | shows | from |
//! |---|---|---|
//! | [`served`] | a collective's result, kept whole, that a survivor sends to those who lack it | ULML, section 2.2 |
//! | [`exit`] | survivors that save their state when something fails, exit, and are loaded again | CoF, Algorithm 1 |
//! | [`line`](mod@line) | calls that run again at a restart, with dummy arguments; a checkpoint that is asked for while the program waits; a committed line older than the newest checkpoint | C3, sections 3 and 5.3 |
#![forbid(unsafe_code)]

pub mod exit;
pub mod line;
pub mod served;
