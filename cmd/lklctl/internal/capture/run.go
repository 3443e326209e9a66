// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/lklrun/lklrun/cmd/lklctl/internal/verb"
	"github.com/lklrun/lklrun/internal/base/exit"
	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/internal/diag/packets"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/pkg/capture"
)

// captureRow is a packet in the JSON output of capture.
type captureRow struct {
	// Time is the stack's time at which the packet passed the interface.
	Time time.Time `json:"time"`
	// Instance is the name of the instance.
	Instance string `json:"instance"`
	// Interface is the name of the interface.
	Interface string `json:"interface"`
	// Direction is in or out; absent if it is unknown.
	Direction string `json:"direction,omitempty"`
	// LengthBytes is the packet's length, including the link-layer header.
	LengthBytes int `json:"length_bytes"`
	// CapturedBytes is the number of captured bytes of the packet.
	CapturedBytes int `json:"captured_bytes"`
	// Text is tcpdump's description of the packet.
	Text string `json:"text"`
	// PID is the ID of the process whose socket sent or received the packet.
	PID int `json:"pid,omitempty"`
	// Process is the name of that process.
	Process string `json:"process,omitempty"`
	// Comment contains additional information, such as the token of the MPTCP
	// connection.
	Comment string `json:"comment,omitempty"`
}

// recorder forwards a capture's packets, counts them, and ends the capture at the
// limit.
type recorder struct {
	capture.Handler
	members  []*capture.Member
	captured uint64
	most     uint64 // -c; 0: no limit
}

// Interface records the interface for the summary.
func (r *recorder) Interface(m *capture.Member) error {
	r.members = append(r.members, m)
	return r.Handler.Interface(m)
}

// Packets forwards the packets up to the limit.
func (r *recorder) Packets(packets []capture.Packet) error {
	enough := false
	if left := r.most - r.captured; r.most > 0 && uint64(len(packets)) >= left {
		packets, enough = packets[:left], true
	}
	err := r.Handler.Packets(packets)
	r.captured += uint64(len(packets))
	if err == nil && enough {
		err = capture.ErrEnough
	}
	return err
}

// Events forwards events to a file.
func (r *recorder) Events(events []capture.Event) error {
	if e, ok := r.Handler.(capture.EventHandler); ok {
		return e.Events(events)
	}
	return nil
}

// Keys forwards TLS secrets to a file.
func (r *recorder) Keys(lines []byte) error {
	if k, ok := r.Handler.(capture.KeyHandler); ok {
		return k.Keys(lines)
	}
	return nil
}

// runCapture runs the verb capture.
func runCapture(ctx context.Context, c *verb.Call, o *captureOptions, filter string) error {
	take, err := o.take(filter)
	if err != nil {
		return err
	}
	// Check the filter before anything is opened. Each link type needs its own
	// filter program, but the syntax is the same for all.
	if _, err := capture.Compile(filter, capture.LinkTypeEthernet, capture.MaxSnaplen); err != nil {
		return filterError(err)
	}
	attaching, cancel := context.WithTimeout(ctx, verb.QueryLimit)
	defer cancel()
	names, err := o.instances(c.Place, c.Name)
	if err != nil {
		return err
	}
	if o.keys {
		files, err := keyFiles(c, names)
		if err != nil {
			return err
		}
		for _, f := range files {
			defer f.Close()
			take.Keys = append(take.Keys, capture.NewKeys(f))
		}
	}
	session, err := capture.NewSession(take)
	if err != nil {
		return err
	}
	for n, name := range names {
		info, detach, err := join(attaching, c, session, name)
		if err != nil {
			return err
		}
		defer detach() //nolint:errcheck // a connection that is given up
		names[n] = info.Name
	}
	return record(ctx, c, o, take, names, session)
}

// keyFiles opens the files with the TLS secrets of instances.
func keyFiles(c *verb.Call, names []string) (files []*os.File, err error) {
	if c.Device != "" {
		return nil, exit.Usagef("--tls-keys: not with --device; use lklrun --device %s --capture FILE --tls-keys", c.Device)
	}
	for _, name := range names {
		named := *c
		named.Name = name
		info, err := named.Choose()
		if err != nil {
			return files, err
		}
		file, err := instance.OpenKeys(info.Dir)
		if err != nil {
			return files, exit.Usagef("--tls-keys: instance %q: %w", info.Name, err)
		}
		files = append(files, file)
	}
	return files, nil
}

// instances returns the names of the instances to capture from. The name "" means
// the only running instance.
func (o *captureOptions) instances(place instance.Place, one string) ([]string, error) {
	if !o.all {
		if len(o.names) == 0 {
			return []string{one}, nil
		}
		return slices.Compact(slices.Sorted(slices.Values(o.names))), nil
	}
	if len(o.names) > 0 || one != "" {
		return nil, exit.Usagef("--all-instances: conflicts with -n; remove one of them")
	}
	all, err := place.List()
	if err != nil {
		return nil, err
	}
	var names []string
	for _, i := range all {
		if i.Running {
			names = append(names, i.Name)
		}
	}
	if len(names) == 0 {
		return []string{""}, nil // join reports that none is running
	}
	return names, nil
}

// join adds an instance to a session. The returned function closes the connection.
func join(ctx context.Context, c *verb.Call, session *capture.Session, name string) (*instance.Info, func() error, error) {
	named := *c
	named.Name = name
	info, conn, err := named.Attach(ctx)
	if err != nil {
		return nil, nil, err
	}
	if err := session.Add(ctx, packets.New(conn), info.Name); err != nil {
		conn.Close()
		return nil, nil, captureError(info, err)
	}
	return info, conn.Close, nil
}

// record runs the session and writes to a file or to standard output.
func record(ctx context.Context, c *verb.Call, o *captureOptions, take capture.Take, names []string, session *capture.Session) error {
	r := &recorder{most: o.count}
	var finish func() error
	if o.file == "" {
		l, err := newLines(c, o, len(names) > 1)
		if err != nil {
			return err
		}
		r.Handler, finish = l, l.finish
	} else {
		options := o.fileOptions(take, len(names) > 1)
		options.Out = c.Stdout
		files, err := capture.NewFiles(options)
		if err != nil {
			return fileError(o.file, err)
		}
		r.Handler, finish = files, files.Close
	}
	if !o.quiet && o.file != "" {
		cli.Note(c.Stderr, verb.Program, "capturing on %s; press Ctrl-C to stop", strings.Join(names, ", "))
	}
	err := session.Run(ctx, r)
	if ferr := finish(); err == nil {
		err = ferr
	}
	if !o.quiet {
		summary(c, r)
	}
	if err != nil {
		return fileError(o.file, err)
	}
	return nil
}

// summary prints the counts, like tcpdump.
func summary(c *verb.Call, r *recorder) {
	var sum capture.Stats
	for _, m := range r.members {
		s := m.Stats(context.Background()) // the session has ended, so this call does not query the stack
		sum.Received += s.Received
		sum.Dropped += s.Dropped
		sum.Early = sum.Early || s.Early
	}
	early := ""
	if sum.Early { // the counters were read shortly before the end of the capture
		sum.Received = max(sum.Received, r.captured+sum.Dropped)
		early = "; the stack has ended, so these counts may be up to 100 ms old"
	}
	cli.Note(c.Stderr, verb.Program, "%d packets captured, %d received by filter, %d dropped by the stack%s", r.captured, sum.Received, sum.Dropped, early)
}

// filterError marks a filter's error as an error of the command line.
func filterError(err error) error {
	var refused *capture.FilterError
	if errors.As(err, &refused) {
		return &exit.UsageError{Err: fmt.Errorf("%w; see pcap-filter(7)", err)}
	}
	return err
}

func captureError(info *instance.Info, err error) error {
	var none *capture.NoInterfaceError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &none):
		return &exit.UsageError{Err: fmt.Errorf("instance %q: %w", info.Name, err)}
	}
	return filterError(err)
}

// fileError adds the file's name to an error.
func fileError(path string, err error) error {
	var pe *os.PathError
	if errors.As(err, &pe) && path != "" && path != "-" {
		return fmt.Errorf("writing %s: %w", pe.Path, pe.Err)
	}
	return err
}
