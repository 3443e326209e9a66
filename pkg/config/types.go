// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/lklrun/lklrun/internal/base/suggest"
)

// DefaultType is the type of the interface of a run that names none.
const DefaultType = "user"

// Type describes a type of interface. The readers, the JSON Schema, the help
// and the reference are derived from it.
//
// Each driver of lklrun registers its type. Programs that import this package
// register them all by a blank import of pkg/config/types.
type Type struct {
	Name string
	Rank int // place in lists; equal ranks are in the order of their names
	Help string

	// Arg is the key of the argument in a file: "device", "fd", or "" for a
	// type without argument. Form is the argument's form in a specification.
	Arg, Form string

	// Keys are the keys that the type takes, beside those that all types
	// take. Why explains why it does not take a key, if the general reason
	// does not fit.
	Keys []string
	Why  map[string]string

	Hijack    string // LKL's own name of the type; empty: it has none
	NeedsRoot bool   // on every machine

	// AnyGateway means that the other end of the link accepts all packets,
	// so the gateway needs no address of the interface in its network.
	// Lends means that the host's device provides the addresses if none are
	// configured; the plan then checks the gateway.
	AnyGateway, Lends bool

	// ParseArg sets the argument. Without it, the argument is the name of a
	// device, or the number of a descriptor.
	ParseArg func(i *Interface, arg string) error

	// Check finds errors in the combination of keys; nil: there are none.
	Check func(i *Interface) *KeyError

	// Exclusive reports whether the device supports only this interface;
	// nil: it does if there is an argument. Conflict says why all[second]
	// cannot exist beside all[first], which has the same type; nil or an
	// empty result: it can.
	Exclusive func(i *Interface) bool
	Conflict  func(all []Interface, first, second int) string
}

// interfaceTypes lists the registered types in the order of output.
var interfaceTypes []*Type

// RegisterType adds a type. It must be called during initialization, and panics
// if the type is not possible.
func RegisterType(t Type) {
	if findType(t.Name) != nil || t.Arg != "" && !slices.Contains(targetKeys[1:], t.Arg) {
		panic(fmt.Sprintf("config: the interface type %q already exists, or has an invalid argument", t.Name))
	}
	for _, name := range slices.Concat(t.Keys, slices.Collect(maps.Keys(t.Why))) {
		if k := findKey(name); k == nil || k.why == "" {
			panic(fmt.Sprintf("config: the interface type %q names the key %q, which does not exist or is supported by all types", t.Name, name))
		}
	}
	interfaceTypes = append(interfaceTypes, &t)
	slices.SortFunc(interfaceTypes, func(a, b *Type) int {
		return cmp.Or(cmp.Compare(a.Rank, b.Rank), strings.Compare(a.Name, b.Name))
	})
}

// LookupType returns the description of a type; nil: it is not registered.
func LookupType(name string) *Type {
	t := findType(name)
	if t == nil {
		return nil
	}
	c := *t
	return &c
}

// spec returns TYPE or TYPE:ARG.
func (t *Type) spec() string {
	if t.Form == "" {
		return t.Name
	}
	return t.Name + ":" + t.Form
}

func findType(name string) *Type {
	n := slices.IndexFunc(interfaceTypes, func(t *Type) bool { return t.Name == name })
	if n < 0 {
		return nil
	}
	return interfaceTypes[n]
}

// TypeNames lists the registered types, in the order of output.
func TypeNames() []string {
	names := make([]string, len(interfaceTypes))
	for n, t := range interfaceTypes {
		names[n] = t.Name
	}
	return names
}

// typesWith lists the types for which has is true, for a sentence.
func typesWith(has func(*Type) bool) string {
	var names []string
	for _, t := range interfaceTypes {
		if has(t) {
			names = append(names, t.Name)
		}
	}
	return joinWords(names, " and ")
}

// interfaceForms lists the types for an error.
func interfaceForms() string {
	var forms []string
	for _, t := range interfaceTypes {
		forms = append(forms, t.spec())
	}
	return joinWords(forms, " or ")
}

func joinWords(words []string, last string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	end := len(words) - 1
	return strings.Join(words[:end], ", ") + last + words[end]
}

// unknownType returns the error for a type that does not exist, or no longer.
func unknownType(typ, expected string) error {
	switch {
	case len(interfaceTypes) == 0:
		return fmt.Errorf("%q: no interface types are registered; import pkg/config/types", typ)
	case typ == "passt":
		return fmt.Errorf("%q: no longer an interface type; use user, whose gateway supports more protocols", typ)
	}
	return fmt.Errorf("%q: unknown interface type; %s", typ, suggest.Or(typ, TypeNames(), expected))
}
