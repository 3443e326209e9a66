// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"context"
	"time"

	"github.com/lklrun/lklrun/cmd/lklctl/internal/verb"
	"github.com/lklrun/lklrun/internal/base/exit"
	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/remote"
	"github.com/lklrun/lklrun/internal/ui/extcap"
)

// Wireshark waits for the list when it starts. deviceWait is the timeout for
// devices that the user has not named, which are those of adb. namedWait is the
// timeout for the devices of LKLRUN_DEVICE.
const (
	deviceWait = time.Second
	namedWait  = 3 * time.Second
	lateness   = 500 * time.Millisecond // additional time for the cancellation
)

// extcapPlaces returns the places from which Wireshark can capture: this machine
// and, for a list, the devices that answer in time. It uploads nothing to a device
// and does not start an adb server. leave closes the connections.
func extcapPlaces(ctx context.Context, c *verb.Call, o *extcapOptions) (places []instance.Place, leave func(), err error) {
	here := []instance.Place{{}}
	leave = func() {}
	if o.value != "" {
		return extcapNamed(ctx, c, extcap.Elsewhere(o.value))
	}
	limit := deviceWait
	if c.Device != "" {
		limit = namedWait
	}
	limited, cancel := context.WithTimeout(ctx, limit)
	targets := remote.Attached
	if c.Device != "" {
		targets = func(ctx context.Context) []remote.Target {
			all, err := c.Targets(ctx)
			if err != nil {
				cli.Note(c.Stderr, verb.Program, "%v", err) // Wireshark logs this message
			}
			return all
		}
	}
	found := make(chan *verb.Remote, 1)
	go func() {
		far, errs, err := c.Connect(limited, targets(limited), true)
		for _, err := range append(errs, err) {
			if err != nil && limited.Err() == nil && c.Device != "" {
				cli.Note(c.Stderr, verb.Program, "%v", err)
			}
		}
		found <- far
	}()
	// Slow devices are cancelled at the limit. The additional time is only
	// for cleanup.
	late := time.NewTimer(limit + lateness)
	defer late.Stop()
	select {
	case far := <-found:
		if far == nil {
			cancel()
			return here, leave, nil
		}
		return append(here, far.Places()...), func() { far.Close(); cancel() }, nil
	case <-late.C:
		return here, cancel, nil
	}
}

// extcapNamed returns the place of an interface that Wireshark has listed
// before.
func extcapNamed(ctx context.Context, c *verb.Call, device string) ([]instance.Place, func(), error) {
	if device == "" {
		return []instance.Place{{}}, func() {}, nil
	}
	targets, err := remote.Parse(device)
	if err != nil {
		return nil, nil, exit.Usagef("--extcap-interface: %w", err)
	}
	far, err := c.ConnectAll(ctx, targets)
	if err != nil {
		return nil, nil, err
	}
	return far.Places(), far.Close, nil
}
