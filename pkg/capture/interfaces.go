// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// NoInterfaceError reports an interface that a stack does not have.
type NoInterfaceError struct {
	Name string
	Have []string
}

// Error names the missing interface, and the existing ones.
func (e *NoInterfaceError) Error() string {
	return fmt.Sprintf("the stack has no interface %q; it has %s", e.Name, strings.Join(e.Have, ", "))
}

// Any is the name for all interfaces, including later ones.
const Any = "any"

// choose returns the interfaces with these names or numbers. If some is set, it
// skips those that do not exist, unless all are missing.
func choose(have []Interface, names []string, some bool) ([]Interface, error) {
	exists := func(name string) bool {
		return slices.ContainsFunc(have, func(i Interface) bool { return i.Name == name || strconv.Itoa(i.Index) == name })
	}
	if some && slices.ContainsFunc(names, exists) {
		names = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !exists(name) })
	}
	var chosen []Interface
	for _, name := range names {
		at := slices.IndexFunc(have, func(i Interface) bool { return i.Name == name || strconv.Itoa(i.Index) == name })
		if at < 0 {
			e := &NoInterfaceError{Name: name}
			for _, i := range have {
				e.Have = append(e.Have, i.Name)
			}
			return nil, e
		}
		if !slices.ContainsFunc(chosen, func(i Interface) bool { return i.Index == have[at].Index }) {
			chosen = append(chosen, have[at])
		}
	}
	return chosen, nil
}
