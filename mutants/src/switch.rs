//! Faults behind switches: what each fault changes, written so that a number turns it on.
//!
//! The faults are those of `cargo mutants`: a function that returns at once with some value, an operator that is
//! another, a `!` that is gone, an arm of a `match` that is gone, a guard of an arm that always or never holds.
//! Constants, patterns, macros and tests stay as they are.

use std::fmt;

use anyhow::Context;
use proc_macro2::TokenStream;
use quote::quote;
use syn::spanned::Spanned;
use syn::visit_mut::{self, VisitMut};
use syn::{Attribute, BinOp, Block, Expr, Pat, ReturnType, Signature, Type, UnOp, parse_quote};

/// What a crate's top gets, so that a fault can ask whether it is on.
pub(crate) const SWITCH: &str = r#"
pub(crate) fn mutant(number: u32) -> bool {
    static ON: std::sync::OnceLock<u32> = std::sync::OnceLock::new();
    let named = || std::env::var("DEADSTOP_MUTANT").ok().and_then(|number| number.parse().ok());
    *ON.get_or_init(|| named().unwrap_or(0)) == number
}
"#;

/// A fault.
pub(crate) struct Mutant {
    pub(crate) number: u32,
    pub(crate) package: &'static str,
    pub(crate) file: String,
    line: usize,
    column: usize,
    function: String,
    what: String,
}

impl fmt::Display for Mutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Mutant { file, line, column, function, what, .. } = self;
        write!(f, "{file}:{line}:{column} {function}: {what}")
    }
}

/// A file with all faults in it, each off.
pub(crate) fn planted(
    text: &str,
    package: &'static str,
    file: &str,
    mutants: &mut Vec<Mutant>,
) -> anyhow::Result<String> {
    let mut tree = syn::parse_file(text).context("it does not parse")?;
    let function = String::new();
    let mut planter = Planter { package, file: file.to_owned(), function, mutants };
    planter.visit_file_mut(&mut tree);
    Ok(quote!(#tree).to_string())
}

struct Planter<'a> {
    package: &'static str,
    file: String,
    function: String,
    mutants: &'a mut Vec<Mutant>,
}

impl Planter<'_> {
    /// Notes a fault and gives its number.
    fn note(&mut self, span: proc_macro2::Span, what: impl Into<String>) -> u32 {
        let number = self.mutants.len() as u32 + 1;
        let (start, what) = (span.start(), what.into());
        self.mutants.push(Mutant {
            number,
            package: self.package,
            file: self.file.clone(),
            line: start.line,
            column: start.column + 1,
            function: self.function.clone(),
            what,
        });
        number
    }

    fn function(&mut self, attributes: &[Attribute], signature: &Signature, body: &mut Block) {
        if signature.constness.is_some() || is_test(attributes) {
            return;
        }
        let outer = std::mem::replace(&mut self.function, signature.ident.to_string());
        self.visit_block_mut(body);
        let returned = match &signature.output {
            ReturnType::Default => vec![quote!(())],
            ReturnType::Type(_, kind) => values(kind),
        };
        for value in returned {
            let shown = value.to_string().replace(" :: ", "::").replace(" ()", "()");
            let number = self.note(signature.ident.span(), format!("returns {shown}"));
            body.stmts.insert(0, parse_quote!(if crate::mutant(#number) { return #value; }));
        }
        self.function = outer;
    }

    fn binary(&mut self, expr: &syn::ExprBinary) -> Option<Expr> {
        let (left, right, op) = (&expr.left, &expr.right, &expr.op);
        let span = op.span();
        let shown = quote!(#op).to_string();
        let mut note = |other: &str| self.note(span, format!("{shown} is {other}"));
        match op {
            BinOp::Eq(_) => {
                let number = note("!=");
                return Some(parse_quote!((crate::mutant(#number) ^ (#left == #right))));
            }
            BinOp::Ne(_) => {
                let number = note("==");
                return Some(parse_quote!((crate::mutant(#number) ^ (#left != #right))));
            }
            BinOp::And(_) | BinOp::Or(_) if has_let(left) || has_let(right) => return None,
            BinOp::And(_) => {
                let number = note("||");
                return Some(parse_quote!({
                    let __left: bool = #left;
                    if crate::mutant(#number) { __left || #right } else { __left && #right }
                }));
            }
            BinOp::Or(_) => {
                let number = note("&&");
                return Some(parse_quote!({
                    let __left: bool = #left;
                    if crate::mutant(#number) { __left && #right } else { __left || #right }
                }));
            }
            _ => {}
        }
        let adds_text = matches!(**right, Expr::Reference(_))
            || matches!(&**right, Expr::Lit(lit) if matches!(lit.lit, syn::Lit::Str(_)));
        let others: &[&str] = match op {
            BinOp::Lt(_) => &["==", ">", "<="],
            BinOp::Gt(_) => &["==", "<", ">="],
            BinOp::Le(_) => &[">"],
            BinOp::Ge(_) => &["<"],
            BinOp::Add(_) if !adds_text => &["-", "*"],
            BinOp::Sub(_) => &["+", "/"],
            BinOp::Mul(_) => &["+", "/"],
            BinOp::Div(_) => &["%", "*"],
            BinOp::BitAnd(_) => &["|", "^"],
            BinOp::AddAssign(_) if !adds_text => &["-=", "*="],
            BinOp::SubAssign(_) => &["+=", "/="],
            BinOp::BitOrAssign(_) => &["&=", "^="],
            _ => return None,
        };
        let mut all: Expr = parse_quote!((#left #op #right));
        for other in others {
            let number = note(other);
            let other: BinOp = syn::parse_str(other).ok()?;
            all = parse_quote!((if crate::mutant(#number) { #left #other #right } else { #all }));
        }
        Some(all)
    }

    fn arms(&mut self, expr: &mut syn::ExprMatch) {
        let catches_all = |arm: &syn::Arm| {
            arm.guard.is_none()
                && match &arm.pat {
                    Pat::Wild(_) => true,
                    Pat::Ident(name) => {
                        let name = name.ident.to_string();
                        name.starts_with(|c: char| c.is_ascii_lowercase())
                    }
                    _ => false,
                }
        };
        let others = expr.arms.last().is_some_and(catches_all);
        let last = expr.arms.len().saturating_sub(1);
        for (index, arm) in expr.arms.iter_mut().enumerate() {
            let span = arm.pat.span();
            let guard = arm.guard.take().map(|(_, guard)| *guard);
            let guard: Option<Expr> = match guard {
                Some(guard) if has_let(&guard) => Some(guard),
                Some(guard) => {
                    let always = self.note(guard.span(), "guard is true");
                    let never = self.note(guard.span(), "guard is false");
                    Some(parse_quote!(
                        (crate::mutant(#always) || (!crate::mutant(#never) && #guard))
                    ))
                }
                None => None,
            };
            let guard = if others && index != last {
                let number = self.note(span, "arm is gone");
                match guard {
                    Some(guard) => Some(parse_quote!(!crate::mutant(#number) && #guard)),
                    None => Some(parse_quote!(!crate::mutant(#number))),
                }
            } else {
                guard
            };
            arm.guard = guard.map(|guard| (Default::default(), Box::new(guard)));
        }
    }
}

impl VisitMut for Planter<'_> {
    fn visit_item_mod_mut(&mut self, module: &mut syn::ItemMod) {
        if !is_test(&module.attrs) {
            visit_mut::visit_item_mod_mut(self, module);
        }
    }

    fn visit_item_fn_mut(&mut self, item: &mut syn::ItemFn) {
        self.function(&item.attrs, &item.sig, &mut item.block);
    }

    fn visit_impl_item_fn_mut(&mut self, item: &mut syn::ImplItemFn) {
        self.function(&item.attrs, &item.sig, &mut item.block);
    }

    fn visit_item_const_mut(&mut self, _: &mut syn::ItemConst) {}

    fn visit_impl_item_const_mut(&mut self, _: &mut syn::ImplItemConst) {}

    fn visit_item_static_mut(&mut self, _: &mut syn::ItemStatic) {}

    fn visit_type_mut(&mut self, _: &mut Type) {}

    fn visit_pat_mut(&mut self, _: &mut Pat) {}

    fn visit_expr_mut(&mut self, expr: &mut Expr) {
        visit_mut::visit_expr_mut(self, expr);
        match expr {
            Expr::Binary(binary) => {
                if let Some(other) = self.binary(&binary.clone()) {
                    *expr = other;
                }
            }
            Expr::Unary(unary) if matches!(unary.op, UnOp::Not(_)) => {
                let inner = &unary.expr;
                let number = self.note(unary.op.span(), "! is gone");
                *expr = parse_quote!((crate::mutant(#number) ^ (!#inner)));
            }
            Expr::Match(one) => self.arms(one),
            _ => {}
        }
    }
}

/// Whether something is only there for tests.
fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let text = quote!(#attribute).to_string();
        text.contains("test")
    })
}

/// Whether a condition binds a name, so that its parts cannot be moved.
fn has_let(expr: &Expr) -> bool {
    match expr {
        Expr::Let(_) => true,
        Expr::Binary(binary) => has_let(&binary.left) || has_let(&binary.right),
        Expr::Paren(inner) => has_let(&inner.expr),
        _ => false,
    }
}

/// Values of a type that a function may return instead of its own.
fn values(kind: &Type) -> Vec<TokenStream> {
    match kind {
        Type::Reference(to) => match &*to.elem {
            Type::Path(path) if path.path.is_ident("str") => vec![quote!(""), quote!("xyzzy")],
            Type::Slice(_) => vec![quote!(&[])],
            _ => Vec::new(),
        },
        Type::Tuple(tuple) if tuple.elems.is_empty() => vec![quote!(())],
        Type::Tuple(tuple) => {
            let all: Vec<Vec<TokenStream>> = tuple.elems.iter().map(values).collect();
            let pick = |end: fn(&Vec<TokenStream>) -> Option<&TokenStream>| {
                let picked: Option<Vec<&TokenStream>> = all.iter().map(end).collect();
                picked.map(|picked| quote!((#(#picked),*)))
            };
            pick(|one| one.first()).into_iter().chain(pick(|one| one.last())).collect()
        }
        Type::Path(path) => path.path.segments.last().map(named).unwrap_or_default(),
        _ => Vec::new(),
    }
}

fn named(segment: &syn::PathSegment) -> Vec<TokenStream> {
    let inner = match &segment.arguments {
        syn::PathArguments::AngleBracketed(list) => match list.args.first() {
            Some(syn::GenericArgument::Type(kind)) => values(kind),
            _ => Vec::new(),
        },
        _ => Vec::new(),
    };
    match segment.ident.to_string().as_str() {
        "bool" => vec![quote!(true), quote!(false)],
        "usize" | "u8" | "u16" | "u32" | "u64" => vec![quote!(0), quote!(1)],
        "char" => vec![quote!('x')],
        "String" => vec![quote!(String::new()), quote!("xyzzy".to_owned())],
        "Option" => {
            std::iter::once(quote!(None)).chain(inner.iter().map(|v| quote!(Some(#v)))).collect()
        }
        "Vec" => {
            std::iter::once(quote!(Vec::new())).chain(inner.iter().map(|v| quote!(vec![#v]))).collect()
        }
        "Result" => inner.iter().map(|v| quote!(Ok(#v))).collect(),
        "Loss" => vec![quote!(None)],
        "Effect" => vec![quote!(Effect::Inert), quote!(Effect::Reads), quote!(Effect::Changes)],
        "Effects" => vec![quote!(Effects::only(deadstop_core::Effect::Inert))],
        "Reach" => vec![quote!(Reach::Item), quote!(Reach::Production)],
        "Recovery" => vec![quote!(Recovery::Session), quote!(Recovery::None)],
        "Severity" => vec![quote!(Severity::None), quote!(Severity::Catastrophic)],
        "OnHarm" => vec![quote!(OnHarm::Allow), quote!(OnHarm::Terminate)],
        "Taint" => vec![quote!(Taint::None), quote!(Taint::Fetched)],
        "Input" => vec![quote!(Input::default())],
        "Shell" => vec![quote!(Shell::Posix), quote!(Shell::Power)],
        _ => Vec::new(),
    }
}
