// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"

	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/run/relay"
)

// relays returns the service that passes connections from the host's loopback interface to
// the stack.
func relays(r *run) service {
	if !r.opts.Relay {
		return nil
	}
	return &relayService{run: r}
}

type relayService struct {
	run *run
	*relay.Relay
}

// Start starts the relay.
func (s *relayService) Start(ctx context.Context) (err error) {
	s.Relay, err = relay.Start(ctx, s.run.dir.File(instance.SocketFile), s.run.log)
	return err
}
