// SPDX-License-Identifier: Apache-2.0

package counters

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/base/suggest"
	"github.com/lklrun/lklrun/internal/diag/drops"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
	"github.com/lklrun/lklrun/internal/stack/stacknet"
)

// UnknownError is the error for a counter that a stack does not have.
type UnknownError struct {
	Name  string
	known []string
}

// Error names the counter, and a similar one.
func (e *UnknownError) Error() string {
	return fmt.Sprintf("no counter %q; %s", e.Name, suggest.Suggest(e.Name, e.known, `"lklctl counters -z" lists those of a running stack`))
}

// Watch reads one counter again and again. Unlike Read, it opens its source only once, so that
// reading allocates no numbers in the stack that a program could see.
type Watch struct {
	name  string // or the beginning of the names of a group
	file  *stackconn.File
	parse func(string) (Set, error)

	netlink *stacknet.Netlink // of an interface's counter
	device  string
}

// NewWatch opens the source of a counter: of a file of the stack, or of an interface, which it
// reads over n. The name of a group, such as drops, means the sum of its counters. If the stack
// does not have the counter, the error is an *UnknownError.
func NewWatch(ctx context.Context, c *stackconn.Conn, n *stacknet.Netlink, name string) (*Watch, error) {
	unknown, group := &UnknownError{Name: name}, false
	for _, g := range dropGroups { // which have only the reasons that have occurred
		unknown.known = append(unknown.known, strings.TrimSuffix(g, "."))
		reason, ok := strings.CutPrefix(name+".", g)
		group = group || ok && (reason == "" || drops.Known(strings.TrimSuffix(reason, ".")))
	}
	for _, src := range files {
		f, err := c.Open(ctx, src.path, unix.O_RDONLY)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		w := &Watch{name: name, file: f, parse: src.parse}
		all, err := w.read(ctx)
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		if group && src.path == drops.CountsFile {
			return w, nil
		}
		for i := range all {
			unknown.known = append(unknown.known, all[i].Name)
			if w.matches(&all[i]) {
				return w, nil
			}
		}
		if err := f.Close(); err != nil {
			return nil, err
		}
	}
	links, err := n.Links()
	if err != nil {
		return nil, err
	}
	for _, l := range links {
		for _, c := range ofLink(l) {
			unknown.known = append(unknown.known, c.Name)
			if c.Name == name {
				return &Watch{name: name, netlink: n, device: l.Name}, nil
			}
		}
	}
	return nil, unknown
}

// matches reports whether a counter is the watched one, or belongs to the watched group.
func (w *Watch) matches(c *Counter) bool {
	rest, ok := strings.CutPrefix(c.Name, w.name)
	return ok && (rest == "" || rest[0] == '.' && dropsBase(c.Name) != "")
}

func (w *Watch) read(ctx context.Context) (Set, error) {
	if w.netlink != nil {
		l, ok, err := w.netlink.Link(w.device)
		if err == nil && !ok {
			err = fmt.Errorf("the interface %s has disappeared", w.device)
		}
		return ofLink(l), err
	}
	text, err := w.file.Reread(ctx)
	if err != nil {
		return nil, err
	}
	return w.parse(string(text))
}

// Value returns the present value.
func (w *Watch) Value(ctx context.Context) (n int64, err error) {
	all, err := w.read(ctx)
	for i := range all {
		if w.matches(&all[i]) {
			n += all[i].Value.Int()
		}
	}
	return n, err
}
