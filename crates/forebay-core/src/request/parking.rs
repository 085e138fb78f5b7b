//! Where requests wait: by ticket, for as long as one of their effects is carried out elsewhere.

use crate::bridge::Ticket;

/// Requests that may wait at one driver at a time. One more is answered EAGAIN.
pub const MAX_PARKED: usize = 1 << 14;

/// What waits, by ticket. A ticket is never given twice: it counts the lives of its place.
#[derive(Debug)]
pub struct Parking<T> {
    places: Vec<(u32, Option<T>)>,
    free: Vec<u32>,
}

impl<T> Default for Parking<T> {
    fn default() -> Self {
        Parking {
            places: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<T> Parking<T> {
    /// The ticket that the next [`Parking::park`] gives; `None` if there is no room.
    pub fn next_ticket(&self) -> Option<Ticket> {
        match self.free.last() {
            Some(&place) => Some(ticket(place, self.places[place as usize].0)),
            None if self.places.len() < MAX_PARKED => Some(ticket(self.places.len() as u32, 0)),
            None => None,
        }
    }

    /// Lets something wait.
    ///
    /// # Errors
    /// There is no room; gives back what was to wait.
    pub fn park(&mut self, what: T) -> Result<Ticket, T> {
        let Some(ticket) = self.next_ticket() else {
            return Err(what);
        };
        match self.free.pop() {
            Some(place) => self.places[place as usize].1 = Some(what),
            None => self.places.push((0, Some(what))),
        }
        debug_assert!(self.get_mut(ticket).is_some());
        Ok(ticket)
    }

    /// What waits under a ticket; `None` once it has been taken.
    pub fn get_mut(&mut self, ticket: Ticket) -> Option<&mut T> {
        let (life, what) = self.places.get_mut(ticket as u32 as usize)?;
        what.as_mut().filter(|_| *life == (ticket >> 32) as u32)
    }

    /// Takes out what waits under a ticket.
    pub fn take(&mut self, ticket: Ticket) -> Option<T> {
        let place = ticket as u32;
        let (life, what) = self.places.get_mut(place as usize)?;
        if *life != (ticket >> 32) as u32 {
            return None;
        }
        let what = what.take()?;
        *life = life.wrapping_add(1);
        self.free.push(place);
        Some(what)
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Does nobody wait?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

fn ticket(place: u32, life: u32) -> Ticket {
    u64::from(life) << 32 | u64::from(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_is_good_once_and_for_nothing_else() {
        let mut parking = Parking::default();
        let next = parking.next_ticket();
        let first = parking.park("first").unwrap();
        assert_eq!(next, Some(first));
        let second = parking.park("second").unwrap();
        assert_eq!(parking.len(), 2);
        assert_eq!(parking.take(first), Some("first"));
        assert_eq!(parking.take(first), None);
        let third = parking.park("third").unwrap();
        assert_ne!(third, first, "the place is used again, the ticket is not");
        assert_eq!(parking.get_mut(first), None);
        assert_eq!(parking.take(second), Some("second"));
        assert_eq!(parking.take(third), Some("third"));
        assert!(parking.is_empty());
    }

    #[test]
    fn a_full_parking_gives_back_what_was_to_wait() {
        let mut parking = Parking::default();
        for n in 0..MAX_PARKED {
            parking.park(n).unwrap();
        }
        assert_eq!(parking.next_ticket(), None);
        assert_eq!(parking.park(7), Err(7));
    }
}
