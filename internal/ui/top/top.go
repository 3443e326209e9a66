// SPDX-License-Identifier: Apache-2.0

// Package top implements lklctl top: it shows the running instances. For one instance,
// it also shows the interfaces, the connections and their subflows. The output is a
// terminal screen or text.
//
// Package live provides the data. The keys are those of htop(1).
package top

import (
	"context"
	"os"

	tea "charm.land/bubbletea/v2"

	"github.com/lklrun/lklrun/internal/base/text"
	"github.com/lklrun/lklrun/internal/diag/live"
)

// Options control the display.
type Options struct {
	Name  string // the only instance to follow; empty: all
	ASCII bool   // graphs use only ASCII characters
	Paint text.Palette
}

// framesMost is the maximum number of frames per second. Keys take effect quickly, and
// a slow terminal line is not flooded.
const framesMost = 20

// Run shows the data of monitor on the terminal, until the user quits or ctx is done. It
// then restores the terminal.
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
