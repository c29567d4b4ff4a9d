//! Numbered values, with reused numbers.

/// Numbered values.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    values: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Slab<T> {
        Slab { values: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    pub(crate) fn add(&mut self, value: T) -> u32 {
        let Some(number) = self.free.pop() else {
            self.values.push(Some(value));
            return (self.values.len() - 1) as u32;
        };
        self.values[number as usize] = Some(value);
        number
    }

    pub(crate) fn get(&self, number: u32) -> Option<&T> {
        self.values.get(number as usize)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.values.get_mut(number as usize)?.as_mut()
    }

    /// Returns all values' numbers, ascending.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = u32> {
        (0..).zip(&self.values).filter(|(_, value)| value.is_some()).map(|(number, _)| number)
    }

    pub(crate) fn remove(&mut self, number: u32) -> Option<T> {
        let value = self.values.get_mut(number as usize)?.take()?;
        self.free.push(number);
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_used_again() {
        let mut slab = Slab::default();
        let (one, two) = (slab.add(1), slab.add(2));
        assert_eq!((slab.remove(one), slab.remove(one)), (Some(1), None));
        assert_eq!((slab.add(3), slab.get(one), slab.get(two)), (one, Some(&3), Some(&2)));
        *slab.get_mut(two).unwrap() = 4;
        assert_eq!(slab.remove(two), Some(4));
    }
}
