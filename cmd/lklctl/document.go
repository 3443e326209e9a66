// SPDX-License-Identifier: Apache-2.0

package main

import (
	"reflect"

	"github.com/spf13/cobra"
)

// documents are the Go types that verbs print with -o json; docs/json.md is made
// of them and of their fields' comments.
var documents = map[*cobra.Command][]documented{}

// documented is a type, and the flag with which the verb prints it; empty: without.
type documented struct {
	flag string
	typ  reflect.Type
}

// document tells the type of a verb's JSON by an example of it.
func document(cmd *cobra.Command, example any) { documentWith(cmd, "", example) }

// documentWith is document for what the verb prints with a flag.
func documentWith(cmd *cobra.Command, flag string, example any) {
	documents[cmd] = append(documents[cmd], documented{flag, reflect.TypeOf(example)})
}
