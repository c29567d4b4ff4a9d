//! Small rules, one for each part of the protocols' interface that the published rules use differently or not at all. Each adds to the plain
//! rule, as a paper's rule would, and is no use to a program: it shows that a driver does what the interface says.
//!
//! | rule | shows | from |
//! |---|---|---|
//! | [`served`] | a collective's result, kept whole, that a survivor sends to those who lack it | ULML, section 2.2 |
#![forbid(unsafe_code)]

pub mod served;
