// SPDX-License-Identifier: Apache-2.0

package verb

import (
	"reflect"

	"github.com/spf13/cobra"
)

// Documents lists the Go types that verbs print with -o json. `make reference`
// generates json.md from them and from the comments of their fields.
var Documents = map[*cobra.Command][]documented{}

// documented is a type, and the flag with which the verb prints it (empty: without
// a flag).
type documented struct {
	Flag string
	Type reflect.Type
}

// Document registers the type of a verb's JSON output. example is a value of this
// type.
func Document(cmd *cobra.Command, example any) { DocumentWith(cmd, "", example) }

// DocumentWith is like Document, for the output that the verb prints with a flag.
func DocumentWith(cmd *cobra.Command, flag string, example any) {
	Documents[cmd] = append(Documents[cmd], documented{flag, reflect.TypeOf(example)})
}
