var e={pod:"Pod",vm:"VM",node:"Node",external:"External",service:"Service"};export{e as a};
