//! Retry delays as a sender computes them: an expression in milliseconds over `retried`.
//!
//! Owns the grammar: numbers, `retried`, `+ - * /`, parentheses and a few functions. It is bounded in length and depth.

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};

use super::Fault;

const FIELD: &str = "Upstash-Retry-Delay";
const ACCEPTED: &str = "an expression in milliseconds like 1000 * pow(2, retried): numbers, retried, + - * / ( ), \
                        pow sqrt abs exp floor ceil round min max";
const LONGEST: usize = 512;
const DEEPEST: u32 = 32;
/// No delay is longer.
const MOST: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// An expression that was read, and is kept as it was written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct Expression {
    text: String,
    root: Node,
}

#[derive(Clone, Debug, PartialEq)]
enum Node {
    Number(f64),
    Retried,
    Negative(Box<Node>),
    Pair(char, Box<Node>, Box<Node>),
    Call(Function, Vec<Node>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Function {
    Pow,
    Sqrt,
    Abs,
    Exp,
    Floor,
    Ceil,
    Round,
    Min,
    Max,
}

impl Expression {
    /// The expression that this text is.
    pub(crate) fn read(text: &str) -> Result<Self, Fault> {
        let wrong = || Fault::new(FIELD, text, ACCEPTED);
        if text.len() > LONGEST {
            return Err(wrong());
        }
        let mut parser = Parser { rest: text, depth: 0 };
        let root = parser.sum().filter(|_| parser.peek().is_none()).ok_or_else(wrong)?;
        Ok(Expression { text: text.trim().to_owned(), root })
    }

    /// The delay before the next attempt, after so many retries; 0 before the first retry.
    pub(crate) fn delay(&self, retried: u32) -> Duration {
        let millis = value(&self.root, f64::from(retried));
        if millis.is_nan() || millis <= 0.0 {
            return Duration::ZERO;
        }
        Duration::try_from_secs_f64(millis / 1000.0).unwrap_or(MOST).min(MOST)
    }
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl TryFrom<String> for Expression {
    type Error = Fault;

    fn try_from(text: String) -> Result<Self, Fault> {
        Expression::read(&text)
    }
}

impl From<Expression> for String {
    fn from(expression: Expression) -> String {
        expression.text
    }
}

fn value(node: &Node, retried: f64) -> f64 {
    match node {
        Node::Number(number) => *number,
        Node::Retried => retried,
        Node::Negative(inner) => -value(inner, retried),
        Node::Pair(sign, left, right) => {
            let (left, right) = (value(left, retried), value(right, retried));
            match sign {
                '+' => left + right,
                '-' => left - right,
                '*' => left * right,
                _ => left / right,
            }
        }
        Node::Call(function, arguments) => {
            let one = |index: usize| value(&arguments[index], retried);
            match function {
                Function::Pow => one(0).powf(one(1)),
                Function::Sqrt => one(0).sqrt(),
                Function::Abs => one(0).abs(),
                Function::Exp => one(0).exp(),
                Function::Floor => one(0).floor(),
                Function::Ceil => one(0).ceil(),
                Function::Round => one(0).round(),
                Function::Min => one(0).min(one(1)),
                Function::Max => one(0).max(one(1)),
            }
        }
    }
}

struct Parser<'a> {
    rest: &'a str,
    depth: u32,
}

impl Parser<'_> {
    fn peek(&mut self) -> Option<char> {
        self.rest = self.rest.trim_start();
        self.rest.chars().next()
    }

    fn take(&mut self, wanted: char) -> Option<()> {
        (self.peek()? == wanted).then(|| self.rest = &self.rest[wanted.len_utf8()..])
    }

    fn sum(&mut self) -> Option<Node> {
        let mut left = self.product()?;
        while let Some(sign @ ('+' | '-')) = self.peek() {
            self.take(sign)?;
            left = Node::Pair(sign, Box::new(left), Box::new(self.product()?));
        }
        Some(left)
    }

    fn product(&mut self) -> Option<Node> {
        let mut left = self.factor()?;
        while let Some(sign @ ('*' | '/')) = self.peek() {
            self.take(sign)?;
            left = Node::Pair(sign, Box::new(left), Box::new(self.factor()?));
        }
        Some(left)
    }

    fn factor(&mut self) -> Option<Node> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return None;
        }
        let node = match self.peek()? {
            '-' => {
                self.take('-')?;
                Node::Negative(Box::new(self.factor()?))
            }
            '(' => {
                self.take('(')?;
                let inner = self.sum()?;
                self.take(')')?;
                inner
            }
            first if first.is_ascii_digit() || first == '.' => self.number()?,
            _ => self.word()?,
        };
        self.depth -= 1;
        Some(node)
    }

    fn number(&mut self) -> Option<Node> {
        let end = self.rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(self.rest.len());
        let (digits, rest) = self.rest.split_at(end);
        self.rest = rest;
        digits.parse().ok().map(Node::Number)
    }

    fn word(&mut self) -> Option<Node> {
        let end = self.rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        let (function, count) = match word {
            "retried" => return Some(Node::Retried),
            "pow" => (Function::Pow, 2),
            "sqrt" => (Function::Sqrt, 1),
            "abs" => (Function::Abs, 1),
            "exp" => (Function::Exp, 1),
            "floor" => (Function::Floor, 1),
            "ceil" => (Function::Ceil, 1),
            "round" => (Function::Round, 1),
            "min" => (Function::Min, 2),
            "max" => (Function::Max, 2),
            _ => return None,
        };
        self.take('(')?;
        let mut arguments = vec![self.sum()?];
        while arguments.len() < count {
            self.take(',')?;
            arguments.push(self.sum()?);
        }
        self.take(')')?;
        Some(Node::Call(function, arguments))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_delay_is_what_its_expression_says() {
        let table = [
            ("1000", 0, 1000),
            ("pow(2, retried) * 1000", 3, 8000),
            ("1000 * (1 + retried)", 2, 3000),
            ("max(min(retried * 500, 1200), 700)", 0, 700),
            ("max(min(retried * 500, 1200), 700)", 9, 1200),
            ("-5 + 10", 0, 5),
            ("2 - 3 - 4", 0, 0),
            ("8 / 2 / 2", 0, 2),
            ("round(1.5) + floor(1.9) + ceil(1.1) + abs(-1) + sqrt(4)", 0, 8),
            ("1 / 0", 0, 7 * 24 * 3_600_000),
            ("sqrt(-1)", 0, 0),
            ("exp(1000)", 0, 7 * 24 * 3_600_000),
        ];
        for (text, retried, millis) in table {
            let expression = Expression::read(text).unwrap_or_else(|fault| panic!("{fault}"));
            assert_eq!(expression.delay(retried).as_millis(), millis, "{text}");
            assert_eq!(expression.to_string(), text);
        }
    }

    #[test]
    fn what_is_no_expression_is_refused() {
        let deep = "(".repeat(100) + "1" + &")".repeat(100);
        for text in [
            "",
            "retry",
            "1 +",
            "pow(2)",
            "pow(1,2,3)",
            "min()",
            "1 2",
            "(1",
            "1)",
            "2 ^ 3",
            "alert(1)",
            &deep,
        ] {
            assert!(Expression::read(text).is_err(), "{text}");
        }
        assert!(Expression::read(&"1+".repeat(400)).is_err());
    }

    proptest! {
        #[test]
        fn any_text_is_an_expression_or_a_fault(text in "[0-9a-z+*/(), .-]{0,60}", retried in any::<u32>()) {
            if let Ok(expression) = Expression::read(&text) {
                prop_assert!(expression.delay(retried) <= MOST);
            }
        }
    }
}
