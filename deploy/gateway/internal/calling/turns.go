package calling

import (
	"context"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/balancer/roundrobin"
)

// Turns is the name of a load balancing policy: gRPC's round_robin, but that a call which is made again goes to another
// replica, if there is one.
const Turns = "headrace_turns"

// picksMax bounds the search for another replica. Calls made at the same time take turns, too, so that the next one may
// be the same again.
const picksMax = 16

func init() { balancer.Register(turns{}) }

type turns struct{}

func (turns) Name() string { return Turns }

func (turns) Build(conn balancer.ClientConn, options balancer.BuildOptions) balancer.Balancer {
	return balancer.Get(roundrobin.Name).Build(picking{conn}, options)
}

// picking has what round_robin picks looked at.
type picking struct{ balancer.ClientConn }

func (p picking) UpdateState(state balancer.State) {
	state.Picker = picker{state.Picker}
	p.ClientConn.UpdateState(state)
}

type picker struct{ balancer.Picker }

func (p picker) Pick(info balancer.PickInfo) (balancer.PickResult, error) {
	result, err := p.Picker.Pick(info)
	made, ok := info.Ctx.Value(madeKey{}).(*madeAt)
	if !ok {
		return result, err
	}
	for picks := 1; picks < picksMax && err == nil && result.SubConn == made.last; picks++ {
		result, err = p.Picker.Pick(info)
	}
	made.last = result.SubConn
	return result, err
}

type madeKey struct{}

// madeAt is where a call was made last.
type madeAt struct{ last balancer.SubConn }

// elsewhere gives the context of a call that may be made again.
func elsewhere(ctx context.Context) context.Context {
	return context.WithValue(ctx, madeKey{}, new(madeAt))
}
