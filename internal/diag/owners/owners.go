// SPDX-License-Identifier: Apache-2.0

// Package owners finds the processes of a stack's sockets. For a stack on another
// machine, it asks the lklrun on that machine, because this machine's /proc does not show
// them.
package owners

import (
	"context"
	"errors"
	"fmt"

	"github.com/lklrun/lklrun/internal/diag/rpc"
	"github.com/lklrun/lklrun/internal/stack/sockdiag"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
)

// carriersMost is the number of sockets per question. A question could hold about three
// times as many.
const carriersMost = 1000

// Attribute sets the processes of a stack's sockets. If it is unknown which processes
// have a socket open, Attribute sets the process that created it.
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

// elsewhere asks lklrun on the stack's machine for the processes.
func elsewhere(ctx context.Context, conn *stackconn.Conn, carriers []uint64) (map[uint64][]sockdiag.Process, error) {
	held := map[uint64][]sockdiag.Process{}
	for len(carriers) > 0 {
		some := carriers[:min(len(carriers), carriersMost)]
		got, err := rpc.Do(ctx, conn, rpc.Holders, rpc.Carriers{Inodes: some}, nil)
		if errors.Is(err, stackconn.ErrClosed) || errors.Is(err, rpc.ErrNoAnswer) || ctx.Err() != nil {
			return nil, err
		}
		if err != nil {
			return held, nil // lklrun there has ended, so only the creators are known
		}
		if n := len(got.Processes); n == 0 || n > len(some) {
			return nil, fmt.Errorf("request to lklrun: it returned %d sockets instead of %d", n, len(some))
		}
		for i, p := range got.Processes {
			held[some[i]] = p
		}
		carriers = carriers[len(got.Processes):]
	}
	return held, nil
}
