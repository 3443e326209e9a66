// SPDX-License-Identifier: Apache-2.0

// Package owners tells whose a stack's sockets are, also those of a stack on another
// machine: what this one's /proc cannot say, the lklrun there is asked for.
package owners

import (
	"context"
	"errors"
	"fmt"

	"github.com/lklrun/lklrun/internal/ask"
	"github.com/lklrun/lklrun/internal/sockdiag"
	"github.com/lklrun/lklrun/internal/stackconn"
)

// carriersMost is how many sockets are asked about at once: a question has room for
// about three times as many.
const carriersMost = 1000

// Attribute tells the sockets of a stack their processes. Where it cannot be known
// who has one open, it is who made it.
func Attribute(ctx context.Context, conn *stackconn.Conn, sockets []sockdiag.Socket) error {
	list, err := conn.Owners(ctx)
	if err != nil {
		return err
	}
	sockdiag.Attribute(sockets, list, func(carriers []uint64) (held map[uint64][]sockdiag.Process) {
		if host := int(conn.Hello().HostPID); host != 0 {
			return sockdiag.Holding(host)
		}
		held, err = elsewhere(ctx, conn, carriers)
		return held
	})
	return err
}

// elsewhere asks the lklrun of the stack's machine.
func elsewhere(ctx context.Context, conn *stackconn.Conn, carriers []uint64) (map[uint64][]sockdiag.Process, error) {
	held := map[uint64][]sockdiag.Process{}
	for len(carriers) > 0 {
		some := carriers[:min(len(carriers), carriersMost)]
		got, err := ask.Do(ctx, conn, ask.Holders, ask.Carriers{Inodes: some}, nil)
		if errors.Is(err, stackconn.ErrClosed) || ctx.Err() != nil {
			return nil, err
		}
		if err != nil {
			return held, nil // lklrun is gone there: who made them is known
		}
		if n := len(got.Processes); n == 0 || n > len(some) {
			return nil, fmt.Errorf("asking lklrun: it tells of %d sockets, was asked for %d", n, len(some))
		}
		for i, p := range got.Processes {
			held[some[i]] = p
		}
		carriers = carriers[len(got.Processes):]
	}
	return held, nil
}
