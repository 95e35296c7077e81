//! Addresses of this process to symbols.

use hashbrown::HashMap;

use super::find::Finder;
use super::{look_up, objects};
use crate::aggregate::{Layouts, Places};
use crate::profile::Profile;
use crate::sys::allocator;

/// The symbols of the functions that these addresses lie in, as the linker has them: mangled.
/// Addresses that no symbol covers are left out.
pub(crate) fn symbols_at(addresses: &[u64]) -> HashMap<u64, String> {
    allocator::giving_back("sigprof-names", || symbols_of(&mut places_of(addresses)))
}

/// A profile that holds the addresses, each once, in what is loaded now.
fn places_of(addresses: &[u64]) -> Profile {
    let mut profile = Profile::default();
    let layouts = Layouts::of_now();
    let mut places = Places::new(&mut profile, &layouts);
    for &address in addresses {
        places.locate(&mut profile, 0, address);
    }
    profile
}

/// The symbols of a profile's locations, by address.
fn symbols_of(profile: &mut Profile) -> HashMap<u64, String> {
    let finder = Finder::of_this_process();
    let mut symbols = HashMap::new();
    for object in objects(profile) {
        let Ok(place) = finder.place(profile.mapping(object.mapping)) else {
            continue;
        };
        let mut locations = object.locations;
        // What the symbol table does not know, debug information may.
        for debug_syms in [false, true] {
            let positions: Vec<u64> = locations
                .iter()
                .map(|&id| place.position(profile, id))
                .collect();
            // Why some have none is nothing that a client asks for.
            let _ = look_up(&place, &positions, debug_syms, &mut |index, found| {
                let address = profile.location(locations[index]).address;
                if !found.name.is_empty() {
                    symbols.insert(address, found.name.clone().into_owned());
                }
            });
            locations.retain(|&id| !symbols.contains_key(&profile.location(id).address));
            if locations.is_empty() {
                break;
            }
        }
    }
    symbols
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_get_the_linkers_symbols() {
        let here = addresses_get_the_linkers_symbols as *const () as u64;
        let found = symbols_at(&[here + 1, 1, here]);
        let name = &found[&here];
        assert!(name.starts_with("_R") || name.starts_with("_ZN"), "{name}");
        assert!(name.contains("addresses_get_the_linkers_symbols"), "{name}");
        assert_eq!(found[&(here + 1)], *name);
        assert_eq!(found.get(&1), None);
    }
}
