// SPDX-License-Identifier: Apache-2.0

package top

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/lklrun/lklrun/internal/diag/live"
	"github.com/lklrun/lklrun/internal/instance"
)

// BatchOptions control the output of Batch.
type BatchOptions struct {
	Place instance.Place
	Name  string // the only instance; empty: all
	Count int    // snapshots per instance; 0: until all have ended
	JSON  bool   // write JSON with one snapshot per line, instead of tables
	ASCII bool
}

// Batch writes the snapshots of monitor to w, one instance at a time. It ends when each
// instance that ran at the start has been shown Count times or has ended, or when ctx
// is done. It skips the first snapshot of an instance, because that contains no rates.
func Batch(ctx context.Context, monitor *live.Monitor, w io.Writer, o BatchOptions) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	pending, err := running(o.Place, o.Name)
	if err != nil {
		return err
	}
	b := &batch{o: o, w: w, pending: pending, all: map[string]*followed{}}
	var failed error
	err = monitor.Run(ctx, func(u live.Update) {
		if done, err := b.take(u); err != nil || done {
			failed = err
			cancel()
		}
	})
	return errors.Join(err, failed)
}

// running returns the directories of the running instances, each with the number of times
// it was shown.
func running(place instance.Place, name string) (map[string]int, error) {
	all, err := place.List()
	if err != nil {
		return nil, err
	}
	found := map[string]int{}
	for _, i := range all {
		if i.Running && (name == "" || i.Name == name) {
			found[i.Files()] = 0
		}
	}
	return found, nil
}

type batch struct {
	o       BatchOptions
	w       io.Writer
	pending map[string]int
	all     map[string]*followed
	began   bool // some output was written
}

// take handles one update; done means that all requested output has been written.
func (b *batch) take(u live.Update) (done bool, err error) {
	dir := u.Info.Files()
	f := b.all[dir]
	if f == nil {
		f = &followed{history: live.NewHistory(remembered)}
		b.all[dir] = f
	}
	was := f.err
	f.info, f.err = u.Info, u.Err
	if u.Err != nil {
		if was == nil || was.Error() != u.Err.Error() {
			f.since = u.Time
		}
		if !b.o.JSON && (was == nil || errors.Is(u.Err, live.ErrEnded)) {
			err = b.write(fmt.Sprintf("%s: %s\n", u.Info.Name, f.why(u.Time)))
		}
		if errors.Is(u.Err, live.ErrEnded) {
			delete(b.all, dir)
			delete(b.pending, dir)
		}
		return len(b.pending) == 0 && len(b.all) == 0 || b.o.Count > 0 && len(b.pending) == 0, err
	}
	f.snapshot = u.Snapshot
	f.history.Add(u.Snapshot)
	if u.Snapshot.Interval == 0 {
		return false, nil
	}
	if b.o.JSON {
		enc := json.NewEncoder(b.w)
		enc.SetEscapeHTML(false)
		err = enc.Encode(u.Snapshot)
	} else {
		err = b.write(strings.Join(b.lines(f), "\n") + "\n")
	}
	if n, ok := b.pending[dir]; ok {
		if b.pending[dir] = n + 1; n+1 == b.o.Count {
			delete(b.pending, dir)
		}
	}
	return b.o.Count > 0 && len(b.pending) == 0, err
}

// write writes a paragraph.
func (b *batch) write(text string) error {
	if b.began {
		text = "\n" + text
	}
	b.began = true
	_, err := io.WriteString(b.w, text)
	return err
}

// lines returns the tables of an instance, with all connections of the snapshot.
func (b *batch) lines(f *followed) []string {
	p := panes{width: least, levels: blocks}
	if b.o.ASCII {
		p.levels = ascii
	}
	s, now := f.snapshot, f.snapshot.Time
	lines := []string{
		now.Format("15:04:05 ") + p.title(s, now), p.instanceHead(),
		p.instanceLine(f, false, highest(p.instanceGraph(), f.history.Rates("")), now), p.linkHead(),
	}
	lines = append(lines, p.linkLines(s, f.history)...)
	if all := rows(s, byRate, false, true, ""); len(all) > 0 {
		lines = append(lines, p.connectionHead(byRate, false))
		most := p.highestOf(all, f.history)
		for _, r := range all {
			lines = append(lines, p.connectionLine(r, f.history, most, false))
		}
	}
	if n := s.Totals.Omitted; n > 0 {
		lines = append(lines, fmt.Sprintf("  %d less busy connections are not listed", n))
	}
	lines[0] = p.fit(lines[0])
	return lines
}
