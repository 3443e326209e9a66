// SPDX-License-Identifier: Apache-2.0

package verb

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"reflect"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lklrun/lklrun/internal/base/exit"
	"github.com/lklrun/lklrun/internal/cli"
)

// output is standard output. It distinguishes write errors from errors of the
// stack.
type output struct{ io.Writer }

// Write adds "standard output" to an error and hides the errno.
func (o output) Write(p []byte) (int, error) {
	n, err := o.Writer.Write(p)
	if err != nil {
		var path *fs.PathError
		if errors.As(err, &path) {
			err = path.Err
		}
		err = errors.New("writing to standard output: " + err.Error())
	}
	return n, err
}

// Columns returns the width of a terminal, or 0 for another output.
func (o output) Columns() int { return cli.Columns(o.Writer) }

// nothingError ends a verb that found nothing, with a message that is not an error. With
// JSON, the empty document replaces the message.
type nothingError struct {
	words  string
	status int
}

// Error returns the message.
func (e *nothingError) Error() string { return e.words }

// Nothing returns the error of a verb that found nothing of what the command line names.
// The status is 1.
func (c *Call) Nothing(format string, args ...any) error {
	return &nothingError{fmt.Sprintf(format, args...), exit.Nothing}
}

// Empty returns the error of a verb whose list is empty. The status is 0, or 1 with
// --fail-empty. The verb has added EmptyFlag.
func (c *Call) Empty(format string, args ...any) error {
	none := &nothingError{words: fmt.Sprintf(format, args...)}
	if c.failEmpty {
		none.status = exit.Nothing
	}
	return none
}

// EmptyFlag adds --fail-empty.
func (c *Call) EmptyFlag(f *pflag.FlagSet) {
	f.BoolVar(&c.failEmpty, "fail-empty", false, "exit with status 1 if the list is empty")
}

// Show prints the result of a verb: document as JSON, or the output of table. n
// is the number of results. none is the message if there are none.
func (c *Call) Show(document any, n int, none error, table func(io.Writer) error) error {
	switch {
	case c.Output == cli.OutputJSON:
		if err := cli.WriteJSON(c.Stdout, document); err != nil {
			return err
		}
	case n > 0:
		return table(c.Stdout)
	}
	if n == 0 {
		return none
	}
	return nil
}

// Fail prints err in the format for the type of error, and returns the exit status.
func (c *Call) Fail(err error) int {
	if said := (*saidError)(nil); errors.As(err, &said) {
		return said.status
	}
	none := (*nothingError)(nil)
	if !errors.As(err, &none) {
		return cli.Fail(c.Stderr, Program, err)
	}
	if c.Output == cli.OutputTable {
		cli.Note(c.Stderr, Program, "%s", none.words)
	}
	return none.status
}

// EndError ends lklctl in the same way as a program, without a message.
type EndError struct{ exit.End }

// Error describes how the program has ended.
func (e *EndError) Error() string { return fmt.Sprintf("the program ended with status %d", e.Status) }

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
