// SPDX-License-Identifier: Apache-2.0

// Package verb contains the code that the verbs of lklctl share: flags, the choice of an
// instance or device, the connection to a stack, output formats, and completion.
package verb

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lklrun/lklrun/internal/base/exit"
	"github.com/lklrun/lklrun/internal/base/text"
	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/remote/forward"
)

// Program is the name of the program, for messages.
const Program = "lklctl"

// Call describes one invocation of the program: the values of the common flags, the
// machine of the instances, and the destination of the output.
type Call struct {
	Name   string // -n: the instance; empty: the only running one
	Device string // --device: the machine of the instances; empty: this one
	Node   *Node  // replaces Device; nil: not a node of Kubernetes
	Place  instance.Place
	Places []instance.Place   // devices that list shows, with --device
	Far    *forward.Forwarder // the device; nil: this machine
	netns  string             // --netns: a network namespace that the target has made; empty: the run's
	Output cli.Output         // -o
	Stdout io.Writer
	Stderr io.Writer
	Paint  text.Palette // colours for standard output, even while --watch buffers the output

	failEmpty bool // --fail-empty

	Began bool // a verb's body has started
}

// New returns a call that writes to stdout and stderr.
func New(stdout, stderr io.Writer) *Call {
	return &Call{Device: os.Getenv(deviceEnv), Output: cli.OutputTable, Stdout: output{stdout}, Stderr: stderr, Paint: text.Paint(stdout)}
}

// Flags adds -n and -o. Without short, which is for verbs that use -n for something
// else, it adds only --name.
func (c *Call) Flags(f *pflag.FlagSet, short bool) {
	n := ""
	if short {
		n = "n"
	}
	f.StringVarP(&c.Name, "name", n, c.Name, "select the instance `NAME` (of a pod: NAMESPACE/POD)")
	cli.OutputFlags(f, &c.Output, "print a table or JSON")
	f.StringVar(&c.Device, "device", c.Device, "use the `DEVICE`, such as adb or ssh:HOST")
	f.Lookup("device").DefValue = "" // the help must not show the variable's value as a default
}

// NoArgs rejects arguments and names the first one.
func NoArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return exit.Usagef("unexpected argument %q; see %s --help", args[0], cmd.CommandPath())
	}
	return nil
}

// NameArg accepts the name of an instance as the only argument, in place of -n.
func (c *Call) NameArg(cmd *cobra.Command, args []string) error {
	switch {
	case len(args) > 1:
		return exit.Usagef("unexpected argument %q: expected one instance; run %s once for each", args[1], cmd.CommandPath())
	case len(args) == 1 && c.Name != "" && c.Name != args[0]:
		return exit.Usagef("-n %s conflicts with %q; name one instance", c.Name, args[0])
	case len(args) == 1:
		if err := instance.CheckSelector(args[0]); err != nil {
			return &exit.UsageError{Err: err}
		}
		c.Name = args[0]
	}
	return nil
}

// SomeArgs requires at least one argument.
func SomeArgs(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return exit.Usagef("no %s given; see %s --help", what, cmd.CommandPath())
		}
		return nil
	}
}

// OneArg requires exactly one argument.
func OneArg(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > 1 {
			return NoArgs(cmd, args[1:])
		}
		return SomeArgs(what)(cmd, args)
	}
}

// Must panics on errors that only a bug in this program can cause.
func Must(err error) {
	if err != nil {
		panic(fmt.Sprintf("lklctl: %v", err))
	}
}
