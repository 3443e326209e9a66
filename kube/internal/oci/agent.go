// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"
)

// An Agent is a plug-in that containerd has not started. It connects again when
// containerd restarts.
type Agent struct {
	Cgroup    *os.File     // the stacks start in this cgroup
	Connected func() error // is called when containerd has accepted the plug-in
	Lost      func() error // is called when the connection has ended

	since chan struct{} // closed when containerd has accepted the plug-in
}

const (
	connectLimit = 20 * time.Second // the library waits without a limit
	retryAfter   = time.Second
)

// Run connects to containerd until ctx is done. It then returns the pods whose end needs
// lklrun-oci.
func (a Agent) Run(ctx context.Context) (pods []string, err error) {
	p := newPlugin(&a)
	for last := ""; ctx.Err() == nil; {
		err := p.connect(ctx)
		if ctx.Err() != nil {
			break
		}
		if errors.Is(err, errUnanswered) {
			return nil, err
		}
		if text := fmt.Sprint(err); text != last {
			fmt.Fprintln(os.Stderr, "lklrun-oci node:", text)
			last = text
		}
		select {
		case <-ctx.Done():
		case <-time.After(retryAfter):
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Sorted(maps.Values(p.handled)), nil
}

var errUnanswered = fmt.Errorf("NRI: containerd has not accepted the plug-in within %s", connectLimit)

// connected is called by the plug-in.
func (a *Agent) connected() { close(a.since) }

// connect serves one connection.
func (p *plugin) connect(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p.agent.since = make(chan struct{})
	clear(p.handled)
	end := make(chan error, 1)
	go func() { end <- p.run(ctx) }()
	select {
	case err := <-end:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(connectLimit):
		return errUnanswered
	case <-p.agent.since:
	}
	err := errors.New("NRI: containerd has closed the connection")
	select {
	case e := <-end:
		if e != nil {
			err = e
		}
	case <-ctx.Done():
		// The requests that containerd has already sent are answered.
		select {
		case err = <-end:
		case <-time.After(stopLimit):
		}
	}
	return errors.Join(err, p.agent.Lost())
}
