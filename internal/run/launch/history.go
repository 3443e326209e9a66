// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"errors"
	"log/slog"
	"os"

	"github.com/lklrun/lklrun/internal/diag/rpc"
	"github.com/lklrun/lklrun/internal/stack/ctlproto"
	"github.com/lklrun/lklrun/internal/stack/mptcpevent"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
)

// historyService records the events of MPTCP subflows, so that `lklctl mptcp`
// can explain why a subflow is missing.
type historyService struct {
	conn  *stackconn.Conn
	log   *slog.Logger
	asked *questions
	h     *mptcpevent.History // nil if the stack reports no events
}

func histories(r *run) service {
	if r.conn.Hello().ABI == ctlproto.CTL_ABI_HOST { // the host's connections include those of other programs
		return nil
	}
	return &historyService{conn: r.conn, log: r.log, asked: &r.asked}
}

// Start subscribes to the events. A stack without these events is no error.
func (s *historyService) Start(ctx context.Context) error {
	h, err := mptcpevent.Record(ctx, s.conn)
	if err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		s.log.Debug("listening to MPTCP's events", "error", err)
	}
	s.h = h
	rpc.Handle(&s.asked.Mux, rpc.MPTCPPast, s.past)
	return nil
}

func (s *historyService) past(_ context.Context, tokens []mptcpevent.Token, _ *os.File) (mptcpevent.Past, error) {
	if s.h == nil {
		return mptcpevent.Past{}, errors.New("this stack does not report MPTCP events")
	}
	return s.h.Events(tokens), nil
}

// Stop ends the recording.
func (s *historyService) Stop() {
	if s.h != nil {
		s.h.Stop()
	}
}
