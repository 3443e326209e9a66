// SPDX-License-Identifier: Apache-2.0

// Package top is lklctl top: the instances that run, the interfaces of one of
// them, and its connections with their subflows, on a terminal and as text.
//
// What is shown comes from package live; the keys are those of htop(1).
package top

import (
	"context"
	"os"

	tea "charm.land/bubbletea/v2"

	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/internal/live"
)

// Options say what is shown, and how.
type Options struct {
	Name  string // the only instance to follow; empty: all
	ASCII bool   // graphs of ASCII characters alone
	Paint cli.Palette
}

// framesMost is how often a second the terminal is written to at most: what a key
// does is seen at once, and a slow line is not flooded.
const framesMost = 20

// Run shows what monitor finds on the terminal, until somebody quits or ctx is
// done. The terminal is then as it was.
func Run(ctx context.Context, monitor *live.Monitor, in, out *os.File, o Options) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	m := newModel(monitor, o)
	p := tea.NewProgram(m, tea.WithInput(in), tea.WithOutput(out), tea.WithoutSignalHandler(),
		tea.WithFPS(framesMost))
	watched := make(chan error, 1)
	go func() {
		err := monitor.Run(ctx, func(u live.Update) { p.Send(updateMsg(u)) })
		watched <- err
		if err != nil || ctx.Err() != nil {
			p.Quit()
		}
	}()
	_, err := p.Run()
	cancel()
	if werr := <-watched; err == nil {
		err = werr
	}
	return err
}
