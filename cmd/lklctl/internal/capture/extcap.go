// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/cmd/lklctl/internal/verb"
	"github.com/lklrun/lklrun/internal/base/exit"
	"github.com/lklrun/lklrun/internal/ui/extcap"
	"github.com/lklrun/lklrun/pkg/capture"
	"github.com/lklrun/lklrun/pkg/config"
)

// version is the version of the extcap protocol.
const version = "1.0"

// extcapOptions contains Wireshark's arguments, named as in extcap(4).
type extcapOptions struct {
	install                          bool
	interfaces, dlts, config, record bool
	wireshark, value, reload         string
	filter                           string
	filtered                         bool // the user has given a filter
	fifo, controlIn, controlOut      string

	snap, buffer            int
	direction, owners, only string
}

// Extcap returns the verb extcap.
func Extcap(c *verb.Call) *cobra.Command {
	var o extcapOptions
	cmd := &cobra.Command{
		Use:   "extcap --install [DIR]",
		Short: "make stacks available in Wireshark",
		Long: `extcap makes running instances and their interfaces available in Wireshark and
tshark. Use --install, with a folder DIR if needed; Wireshark passes the other
flags.`,
		Example: `  sudo lklctl extcap --install
  tshark -D
  tshark -i lklrun-web-eth0 -f 'tcp port 80'`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.filtered = cmd.Flags().Changed("extcap-capture-filter")
			ctx, stop := c.UntilSignal(cmd.Context())
			defer stop()
			return runExtcap(ctx, c, &o, args)
		},
	}
	c.Flags(cmd.Flags(), false)
	o.flags(cmd.Flags())
	return cmd
}

func (o *extcapOptions) flags(f *pflag.FlagSet) {
	f.BoolVar(&o.install, "install", false, "write the script that Wireshark runs, and print its path")
	f.BoolVar(&o.interfaces, "extcap-interfaces", false, "list the interfaces")
	f.StringVar(&o.wireshark, "extcap-version", "", "specify the `VERSION` of Wireshark")
	f.BoolVar(&o.dlts, "extcap-dlts", false, "print the link type of an interface")
	f.BoolVar(&o.config, "extcap-config", false, "print the options of an interface")
	f.StringVar(&o.reload, "extcap-reload-option", "", "print the values of an `OPTION` again")
	f.StringVar(&o.value, "extcap-interface", "", "select the `INTERFACE`, named as in --extcap-interfaces")
	f.StringVar(&o.filter, "extcap-capture-filter", "", "apply this `FILTER`; without --capture, check it only")
	f.BoolVar(&o.record, "capture", false, "capture until the reader closes the pipe")
	f.StringVar(&o.fifo, "fifo", "", "write to this `PIPE`")
	f.StringVar(&o.controlIn, "extcap-control-in", "", "not used")
	f.StringVar(&o.controlOut, "extcap-control-out", "", "not used")
	f.IntVar(&o.snap, "snap", 0, "keep the first `BYTES` of each packet; 0 keeps all")
	f.StringVar(&o.direction, "direction", "inout", "capture packets of the direction `in`, out or inout")
	f.IntVar(&o.buffer, "buffer", capture.DefaultBuffer>>10, "set the size of the buffer in the stack for each interface, in `KIB`")
	f.StringVar(&o.owners, "owners", "true", "add processes and MPTCP tokens as comments: `true` or false")
	f.StringVar(&o.only, extcap.OnlyOption, capture.Any, "capture on the interface `IF` only")
	f.Lookup("extcap-version").NoOptDefVal = "0"
	for _, name := range []string{"extcap-version", "extcap-control-in", "extcap-control-out"} {
		verb.Must(f.MarkHidden(name))
	}
}

// runExtcap performs one call by Wireshark.
func runExtcap(ctx context.Context, c *verb.Call, o *extcapOptions, args []string) error {
	switch {
	case o.install:
		return installExtcap(ctx, c, args)
	case len(args) > 0:
		return exit.Usagef("unexpected argument %q; only --install accepts a folder", args[0])
	}
	if o.record {
		return extcapRecord(ctx, c, o)
	}
	places, leave, err := extcapPlaces(ctx, c, o)
	if err != nil {
		return err
	}
	defer leave()
	all, err := extcap.List(ctx, places...)
	if err != nil {
		return err
	}
	if o.interfaces {
		return extcap.WriteInterfaces(c.Stdout, version, all)
	}
	if o.value == "" {
		return exit.Usagef("nothing to do; use --install, which makes stacks available in Wireshark")
	}
	which, err := extcap.Find(all, o.value)
	if err != nil {
		return err
	}
	switch devices := extcap.Devices(all, which); {
	case o.dlts:
		return extcap.WriteDLTs(c.Stdout, which)
	case o.config:
		return extcap.WriteConfig(c.Stdout, which, devices)
	case o.reload != "":
		return extcap.WriteReload(c.Stdout, which, devices, o.reload)
	case o.filtered:
		return checkFilter(c, o.filter, which)
	}
	return exit.Usagef("--extcap-interface %s: no action given; expected --capture, --extcap-dlts or --extcap-config", o.value)
}

func installExtcap(ctx context.Context, c *verb.Call, args []string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	dir := ""
	if len(args) > 0 {
		dir = args[0]
	}
	path, err := extcap.Install(ctx, dir, self)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(c.Stdout, path)
	return err
}

// checkFilter prints the error of a filter. Wireshark treats any output as an
// error.
func checkFilter(c *verb.Call, filter string, which extcap.Interface) error {
	var refused *capture.FilterError
	_, err := capture.Compile(filter, which.LinkType, capture.MaxSnaplen)
	if errors.As(err, &refused) {
		_, err = fmt.Fprintln(c.Stdout, refused.Words)
	}
	return err
}

// take converts the values of Wireshark's dialog.
func (o *extcapOptions) take(which extcap.Interface) (capture.Take, error) {
	t := capture.Take{Snaplen: o.snap, Filter: o.filter, Buffer: o.buffer << 10}
	switch {
	case which.Device != "":
		t.Names = []string{which.Device}
	case o.only != "" && o.only != capture.Any:
		t.Names = []string{o.only}
	}
	if o.snap < 0 || o.snap > capture.MaxSnaplen {
		return t, exit.Usagef("--snap %d; expected 1 to %d bytes, or 0 for whole packets", o.snap, capture.MaxSnaplen)
	}
	if o.buffer < extcap.MinBuffer || o.buffer > extcap.MaxBuffer {
		return t, exit.Usagef("--buffer %d; expected %d to %d KiB", o.buffer, extcap.MinBuffer, extcap.MaxBuffer)
	}
	switch o.direction {
	case "in":
		t.Direction = capture.In
	case "out":
		t.Direction = capture.Out
	case "inout", "":
	default:
		return t, exit.Usagef("--direction %q; expected in, out or inout", o.direction)
	}
	var err error
	if t.Annotate, err = config.ParseSwitch(o.owners); err != nil {
		return t, exit.Usagef("--owners: %w", err)
	}
	return t, nil
}

// extcapRecord captures into Wireshark's pipe until the pipe has no reader, a
// signal arrives, or the instances have ended.
func extcapRecord(ctx context.Context, c *verb.Call, o *extcapOptions) error {
	if o.fifo == "" {
		return exit.Usagef("--capture: no pipe given; add --fifo PIPE")
	}
	// Open the pipe first. Wireshark waits until it is opened, and sees
	// errors only when it is closed again.
	pipe, err := os.OpenFile(o.fifo, os.O_WRONLY, 0)
	if err != nil {
		return fileError(o.fifo, err)
	}
	defer pipe.Close()
	places, leave, err := extcapPlaces(ctx, c, o)
	if err != nil {
		return err
	}
	defer leave()
	all, err := extcap.List(ctx, places...)
	if err != nil {
		return err
	}
	which, err := extcap.Find(all, o.value)
	if err != nil {
		return err
	}
	take, err := o.take(which)
	if err != nil {
		return err
	}
	session, err := capture.NewSession(take)
	if err != nil {
		return filterError(err)
	}
	c.Place = which.Place
	for _, name := range which.Instances {
		_, detach, err := join(ctx, c, session, name)
		if err != nil {
			return err
		}
		defer detach() //nolint:errcheck // a connection that is given up
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go unread(ctx, pipe, cancel)
	files, err := capture.NewFiles(capture.FileOptions{Path: "-", Out: pipe, Application: "lklctl extcap", PerBatch: true})
	if err == nil {
		err = session.Run(ctx, files)
		if cerr := files.Close(); err == nil {
			err = cerr
		}
	}
	if errors.Is(err, syscall.EPIPE) {
		return nil // the reader has closed the pipe
	}
	return err
}

// unread ends a capture when its pipe has no reader any more. Without it, the
// capture would only end when the next packet arrives and its write fails.
func unread(ctx context.Context, pipe *os.File, end func()) {
	const period = 500 * time.Millisecond
	raw, err := pipe.SyscallConn()
	if err != nil {
		return
	}
	tick := time.NewTicker(period)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		fds := []unix.PollFd{{}}
		err := raw.Control(func(fd uintptr) {
			fds[0].Fd = int32(fd)
			_, _ = unix.Poll(fds, 0) // the loop repeats it after EINTR
		})
		if err != nil || fds[0].Revents&unix.POLLERR != 0 {
			end()
			return
		}
	}
}
