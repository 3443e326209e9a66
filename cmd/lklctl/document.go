// SPDX-License-Identifier: Apache-2.0

package main

import (
	"reflect"

	"github.com/spf13/cobra"
)

// documents lists the Go types that verbs print with -o json. docs/reference/json.md is
// generated from them and from the comments of their fields.
var documents = map[*cobra.Command][]documented{}

// documented is a type and the flag with which the verb prints it; empty: no
// flag.
type documented struct {
	flag string
	typ  reflect.Type
}

// document registers the type of a verb's JSON output by an example.
func document(cmd *cobra.Command, example any) { documentWith(cmd, "", example) }

// documentWith is like document, for the output with a flag.
func documentWith(cmd *cobra.Command, flag string, example any) {
	documents[cmd] = append(documents[cmd], documented{flag, reflect.TypeOf(example)})
}
