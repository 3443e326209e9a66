// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"

	"github.com/lklrun/lklrun/internal/base/suggest"
)

// DefaultType is the interface type of a run whose configuration names no
// interface.
const DefaultType = "user"

// Type describes a type of interface. The readers, the JSON Schema, the help and
// the reference are derived from this description.
//
// Each driver of lklrun registers its type. A program that imports this package
// registers all types by a blank import of pkg/config/types.
type Type struct {
	Name string
	Rank int // position in lists; types with equal ranks are sorted by name
	Help string

	// Arg is the key of the argument in a file: "device", "fd", or "" for a type
	// without an argument. Form is the form of the argument in a specification.
	Arg, Form string

	// Keys lists the keys of several types that this type accepts, in addition to those
	// that all types accept. Own are the keys that only this type has. Why explains why
	// the type rejects a key, if the general reason does not apply.
	Keys []string
	Own  []Key
	Why  map[string]string

	Hijack    string // LKL's name of the type; empty: LKL does not have the type
	NeedsRoot bool   // the type needs root on every machine

	// AnyGateway means that the other end of the link accepts all packets, so the
	// interface needs no address in the network of the gateway. Lends means that
	// the host's device provides the addresses if none are configured; the plan
	// then checks the gateway.
	AnyGateway, Lends bool

	// ParseArg sets the argument. If it is nil, the argument is the name of a
	// device or the number of a descriptor.
	ParseArg func(i *Interface, arg string) error

	// Check returns an error if the combination of keys is invalid. If Check is
	// nil, all combinations are valid.
	Check func(i *Interface) *KeyError

	// Exclusive reports whether the device supports only this interface. If it is
	// nil, the device does if there is an argument. Conflict explains why
	// all[second] cannot coexist with all[first], which has the same type. If
	// Conflict is nil or returns "", they can coexist.
	Exclusive func(i *Interface) bool
	Conflict  func(all []Interface, first, second int) string
}

// interfaceTypes lists the registered types in the order of output.
var interfaceTypes []*Type

// RegisterType adds a type. It must be called during initialization, and panics if
// the type is invalid.
func RegisterType(t Type) {
	if findType(t.Name) != nil || t.Arg != "" && !slices.Contains(targetKeys[1:], t.Arg) {
		panic(fmt.Sprintf("config: the interface type %q already exists, or has an invalid argument", t.Name))
	}
	for _, name := range slices.Concat(t.Keys, slices.Collect(maps.Keys(t.Why))) {
		if k := findKey(name); k == nil || k.why == "" {
			panic(fmt.Sprintf("config: the interface type %q names the key %q, which does not exist or is supported by all types", t.Name, name))
		}
	}
	for _, k := range t.Own {
		if findKey(k.Name) != nil {
			panic(fmt.Sprintf("config: the key %q of the interface type %q already exists", k.Name, t.Name))
		}
	}
	interfaceTypes = append(interfaceTypes, &t)
	slices.SortFunc(interfaceTypes, func(a, b *Type) int {
		return cmp.Or(cmp.Compare(a.Rank, b.Rank), strings.Compare(a.Name, b.Name))
	})
}

// LookupType returns the description of a type, or nil if the type is not
// registered.
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

// typesWith lists the types for which has returns true, in the form of a phrase.
func typesWith(has func(*Type) bool) string {
	var names []string
	for _, t := range interfaceTypes {
		if has(t) {
			names = append(names, t.Name)
		}
	}
	return joinWords(names, " and ")
}

// interfaceForms lists the forms of all types for an error message.
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

// isInterface returns whether this host has an interface of a name.
func isInterface(name string) bool {
	_, err := net.InterfaceByName(name)
	return err == nil
}

// unknownType returns the error for a type that does not exist or was removed.
func unknownType(typ, expected string) error {
	switch {
	case len(interfaceTypes) == 0:
		return fmt.Errorf("%q: no interface types are registered; import pkg/config/types", typ)
	case isInterface(typ):
		return fmt.Errorf("an interface of this host; to use it, write raw:%s or, unless it is wireless, macvtap:%s", typ, typ)
	case typ == "passt":
		return fmt.Errorf("%q: no longer an interface type; use user, whose gateway supports more protocols", typ)
	}
	return fmt.Errorf("%q: unknown interface type; %s", typ, suggest.Suggest(typ, TypeNames(), expected))
}
