package aws_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strings"

	"isobar.dev/sim/aws"
)

func ExampleCloud_Reach() {
	cloud, err := aws.New(aws.Sample(), aws.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	srv := httptest.NewServer(cloud.Handler()) // give srv.URL to any EC2 client as its endpoint
	defer srv.Close()
	for _, port := range []int{22, 5432} {
		v := cloud.Reach(aws.Flow{From: "203.0.113.7", To: "i-0a100000000000001", Protocol: "tcp", Port: port})
		fmt.Println(port, v.Result, v.Path, v.Ingress.Group)
	}
	// Output:
	// 22 allowed internet sg-0a10000000000001
	// 5432 denied internet
}

func ExampleCloud_AddFault() {
	cloud, err := aws.New(aws.Sample(), aws.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	id, err := cloud.AddFault(aws.Fault{Region: "us-east-1", Action: "Describe*", Kind: aws.FaultError, Code: "InternalError", Count: 3})
	fmt.Println(id, err)
	// Output: fault-1 <nil>
}

func ExampleParseEstate() {
	_, err := aws.ParseEstate(strings.NewReader(`{"accounts": [{"id": "shop"}]}`))
	fmt.Println(err)
	// Output: parse estate: accounts[0]: the id is not twelve digits
}

func ExampleServe() {
	ctx, cancel := context.WithCancel(context.Background())
	err := aws.Serve(ctx, aws.ServeOptions{
		Ready: func(endpoint string, _ *aws.Cloud) { cancel() }, // a program would go on until a signal comes
	})
	fmt.Println(err)
	// Output: <nil>
}
