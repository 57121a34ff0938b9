package aws_test

import (
	"fmt"

	"isobar.dev/cloud/aws"
	"isobar.dev/compile"
)

func ExampleParseSecret() {
	c, err := aws.ParseSecret([]byte(`{"accessKeyId": "AKIAEXAMPLE", "accessKeySecret": "example"}`))
	fmt.Println(c, err)
	_, err = aws.ParseSecret([]byte(`{"accessKeyId": "AKIAEXAMPLE"}`))
	fmt.Println(err)
	// Output:
	// {keys: true, role: ""} <nil>
	// parse secret: accessKeyId and accessKeySecret go together
}

func ExampleLower() {
	rs := compile.Rulesets(shopVPC.States()["three"])[0]
	objects, refusals := aws.Lower(aws.Place{}, rs)
	for _, u := range aws.UsageOf(aws.Place{}, objects) {
		fmt.Printf("%s: %d of %d\n", u.Quota, u.Used, u.Limit)
	}
	fmt.Println(len(refusals), "refusals")
	// Output:
	// rules in a security group: 3 of 60
	// security groups in the region: 2 of 2500
	// security groups of an interface: 1 of 5
	// 0 refusals
}
