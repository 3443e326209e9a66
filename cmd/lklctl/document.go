// SPDX-License-Identifier: Apache-2.0

package main

import (
	"reflect"

	"github.com/spf13/cobra"
)

// documents are the Go types that verbs print with -o json; docs/json.md is made
// of them and of their fields' comments.
var documents = map[*cobra.Command]reflect.Type{}

// document tells the type of a verb's JSON by an example of it.
func document(cmd *cobra.Command, example any) { documents[cmd] = reflect.TypeOf(example) }
